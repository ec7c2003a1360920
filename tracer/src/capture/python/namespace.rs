//! Thread ids of processes that live in a namespace of their own, as those of containers do.

use std::collections::HashMap;
use std::fs;

use crate::capture::kernel::targets;

/// Ids as the process itself knows them, made those that are known here. Left out are threads that are gone, and
/// those of another process: until it has cleaned up, one that was just forked finds its parent's in its memory.
pub(super) fn outside<T: Copy>(pid: u32, inside: &HashMap<u32, T>) -> HashMap<u32, T> {
    if inside.is_empty() {
        return HashMap::new();
    }
    let namespace = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let same = namespace(&pid.to_string()) == namespace("self");
    let pairs = targets::threads(pid).into_iter().filter_map(|tid| {
        if same {
            return Some((tid, *inside.get(&tid)?));
        }
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
    fn threads_of_another_process_are_left_out() {
        let own = rustix::thread::gettid().as_raw_pid().cast_unsigned();
        let inside = HashMap::from([(1, 'a'), (own, 'b')]);
        assert_eq!(outside(std::process::id(), &inside), HashMap::from([(own, 'b')]));
        assert_eq!(outside(u32::MAX, &inside), HashMap::new());
    }
}
