//! Turns a report into what a person or a program reads. Computes nothing.
