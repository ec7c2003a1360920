//! Loads and attaches the kernel side, drains its rings, keeps the process table, writes the trace.
