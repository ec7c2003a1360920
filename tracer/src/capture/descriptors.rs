//! Open files: each map, link and library that is held takes one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit on them as far as it may be, and gives back what it was; `None` is none.
pub fn raise() -> Option<u64> {
    let before = getrlimit(Resource::Nofile);
    set(before.maximum);
    before.current
}

/// For a process that is to have the limit it would have without us.
pub fn set(limit: Option<u64>) {
    let maximum = getrlimit(Resource::Nofile).maximum;
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit, maximum }) {
        tracing::debug!(%error, "cannot change RLIMIT_NOFILE");
    }
}
