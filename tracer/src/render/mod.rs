//! Turns a report into what a person or a program reads. Computes nothing.

mod bar;
mod escape;
mod figure;
mod fit;
pub mod flame;
mod json;
mod live;
mod page;
mod text;
mod word;

#[cfg(test)]
mod golden;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod laws;
#[cfg(test)]
mod pipeline;
#[cfg(test)]
mod sample;

pub use escape::{escape, escape_ascii, escape_bytes};
pub use json::{json, schema};
pub use live::{Live, LiveCause, live};
pub use page::{Style, WIDTH};
pub use text::text;
