//! One frame of a folded stack.

use crate::render::escape::escape;
use crate::timeline::NamedFrame;

/// A longer name is cut: it would be read nowhere and could make the picture as large as its maker likes.
const LENGTH: usize = 300;

/// `name` as a frame: escaped, without the `;` that parts frames, and never ending in something that reads
/// as a weight, which is what stands behind the last space of a line.
pub(super) fn safe(name: &str) -> String {
    let name = escape(name.trim());
    let cut = name.char_indices().nth(LENGTH).map_or(name.len(), |(at, _)| at);
    let mut frame = name[..cut].trim_end().replace(';', ":");
    if let Some(space) = frame.rfind(char::is_whitespace) {
        let last = frame[space..].trim_start();
        if last.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
            let blank = frame[space..].len() - last.len();
            frame.replace_range(space..space + blank, "_");
        }
    }
    if frame.starts_with("# ") {
        // The folded form knows such a line as a comment.
        frame.replace_range(1..2, "_");
    }
    if frame.is_empty() { "[no name]".to_owned() } else { frame }
}

/// The name of a frame; the kernel's carry the `_[k]` that folding tools know.
pub(super) fn function(frame: &NamedFrame, kernel: bool) -> String {
    let name = safe(&frame.in_stack());
    if kernel { format!("{name}_[k]") } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_cannot_break_the_line() {
        assert_eq!(safe("read of a;b"), "read of a:b");
        assert_eq!(safe("worker 3"), "worker_3");
        assert_eq!(safe("step 1 2.5"), "step 1_2.5");
        assert_eq!(safe("x\n99"), r"x\n99");
        assert_eq!(safe("  "), "[no name]");
        assert_eq!(safe("# no comment"), "#_no comment");
        assert_eq!(safe("operator()(int)"), "operator()(int)");
        assert_eq!(safe(&"é".repeat(400)).chars().count(), LENGTH);
    }

    proptest! {
        #[test]
        fn a_frame_is_one_field(name in any::<String>()) {
            let frame = safe(&name);
            prop_assert!(!frame.is_empty() && !frame.contains(';') && !frame.contains('\n'));
            prop_assert_eq!(frame.trim(), frame.as_str());
            let last = frame.rsplit(char::is_whitespace).next().unwrap_or("");
            prop_assert!(last.len() == frame.len() || !last.bytes().all(|b| b.is_ascii_digit() || b == b'.'));
        }
    }
}
