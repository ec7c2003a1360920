//! What crosses the kernel boundary: fixed-size records, map keys and values, and the field table that
//! userspace fills from the running kernel's BTF. No logic lives here.
#![no_std]

pub mod wire;
