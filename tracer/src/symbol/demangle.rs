//! Rust and C++ names as people write them.

use std::fmt::{self, Write};

/// Longer names are cut: a mangled name of a hundred bytes can stand for gigabytes.
const LIMIT: usize = 4096;

/// The name demangled, or as it is if it is not mangled.
pub(super) fn demangle(name: &str) -> String {
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        // `#` leaves the hash out.
        let mut out = Cut(String::new());
        if write!(out, "{rust:#}").is_ok() || out.0.len() == LIMIT {
            return out.0;
        }
    } else if name.starts_with("_Z")
        && let Ok(symbol) = cpp_demangle::Symbol::new(name)
    {
        let mut out = Cut(String::new());
        let options = cpp_demangle::DemangleOptions::default();
        if symbol.structured_demangle(&mut out, &options).is_ok() || out.0.len() == LIMIT {
            return out.0;
        }
    }
    let mut out = Cut(String::new());
    match out.write_str(name) {
        // An error only says that it was cut.
        Ok(()) | Err(fmt::Error) => out.0,
    }
}

/// Text that refuses to grow past [`LIMIT`] bytes.
struct Cut(String);

impl Write for Cut {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = LIMIT - self.0.len();
        if text.len() <= room {
            self.0.push_str(text);
            return Ok(());
        }
        let fits = (0..=room).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        self.0.push_str(&text[..fits]);
        // Full for good, even where the last character left a byte or two.
        self.0.extend(std::iter::repeat_n('.', LIMIT - self.0.len()));
        Err(fmt::Error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_as_they_were_written() {
        for (mangled, plain) in [
            ("main", "main"),
            ("_ZN2at6native7resize_ERKNS_6TensorEl", "at::native::resize_(at::Tensor const&, long)"),
            ("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE", "core::fmt::Write::write_fmt"),
            ("_RNvC6_123foo3bar", "123foo::bar"),
            ("_Znot a name", "_Znot a name"),
            ("", ""),
        ] {
            assert_eq!(demangle(mangled), plain);
        }
    }

    #[test]
    fn a_name_that_unfolds_without_end_is_cut() {
        // Each parameter is a pair of the one before.
        let mut bomb = String::from("_Z1f1aIS_S_E");
        for n in 0..30u32 {
            let id = char::from_digit(n, 36).unwrap().to_ascii_uppercase();
            bomb.push_str(&format!("S_IS{id}_S{id}_E"));
        }
        assert_eq!(demangle(&bomb).len(), LIMIT);
        assert_eq!(demangle(&"x".repeat(10_000)).len(), LIMIT);
        assert_eq!(demangle(&"ä".repeat(LIMIT)).len(), LIMIT);
    }
}
