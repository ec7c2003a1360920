//! Matching a stack's functions against a table of names.

use crate::timeline::NamedFrame;

/// The smallest class of any frame: where several match, the more specific account.
pub(super) fn best<C: Copy + Ord>(table: &[(&str, C)], frames: &[NamedFrame]) -> Option<C> {
    frames.iter().filter_map(|frame| row(table, bare(&frame.name))).min()
}

fn row<C: Copy + Ord>(table: &[(&str, C)], name: &str) -> Option<C> {
    table.iter().filter(|(pattern, _)| matches(pattern, name)).map(|&(_, class)| class).min()
}

/// `*` stands for any run of characters.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some(("", rest)) => name.ends_with(rest),
        Some((head, "")) => name.starts_with(head),
        Some((head, rest)) => {
            name.starts_with(head) && name[head.len()..].contains(rest.trim_end_matches('*'))
        }
    }
}

/// The name without what the compiler appended.
pub(super) fn bare(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}

/// A kernel stack of these functions.
#[cfg(test)]
pub(super) fn frames(names: &[&str]) -> Vec<NamedFrame> {
    names
        .iter()
        .map(|&n| NamedFrame {
            name: n.into(),
            module: "[kernel]".into(),
            file: None,
            line: None,
            resolved: true,
        })
        .collect()
}
