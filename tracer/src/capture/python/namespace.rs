//! Thread ids of processes that live in a namespace of their own, as those of containers do.

use std::collections::HashMap;
use std::fs;

/// Ids as the process itself knows them, made those that are known here. Threads that are gone are left out.
pub(super) fn outside<T: Copy>(pid: u32, inside: HashMap<u32, T>) -> HashMap<u32, T> {
    let namespace = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    if inside.is_empty() || namespace(&pid.to_string()) == namespace("self") {
        return inside;
    }
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return HashMap::new() };
    let tids = tasks.flatten().filter_map(|task| task.file_name().to_str()?.parse::<u32>().ok());
    let pairs = tids.filter_map(|tid| {
        let status = fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).ok()?;
        Some((tid, *inside.get(&innermost(&status)?)?))
    });
    pairs.collect()
}

/// The last id in the line that gives them from the outermost namespace on.
fn innermost(status: &str) -> Option<u32> {
    let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    ids.split_ascii_whitespace().next_back()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_id_is_the_process_own() {
        assert_eq!(innermost("Name:\tx\nNSpid:\t4711\t12\t3\nNSpgid:\t1\n"), Some(3));
        assert_eq!(innermost("NSpid:\t4711\n"), Some(4711));
        assert_eq!(innermost("Name:\tx\n"), None);
    }

    #[test]
    fn one_namespace_changes_nothing() {
        let inside = HashMap::from([(1, 'a'), (2, 'b')]);
        assert_eq!(outside(std::process::id(), inside.clone()), inside);
    }
}
