//! `whyidle`: for every millisecond a GPU stood idle, what on the host was it waiting for?
//!
//! Data flows one way, top to bottom; see `docs/architecture.md`.

pub mod capture;
pub mod gpu;
pub mod trace;

pub mod timeline;

pub mod idle;

pub mod eval;
pub mod import;

pub mod cause;

pub mod finding;

pub mod render;

pub mod cli;
pub mod symbol;

pub mod unwind;
