//! Finds the file that was mapped, when recording ends.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use super::elf;
use crate::trace::Mapping;

/// Files kept open while recording; well under the usual limit of 1,024 descriptors.
const HELD: usize = 256;
/// Processes tried for one file.
const TRIES: usize = 8;

/// A file as the mappings name it.
pub(super) type FileName = (String, Vec<u8>);

/// Files kept open since they were seen mapped, so that neither the end of the process nor of its container
/// hides them.
#[derive(Debug, Default)]
pub(super) struct Files {
    held: HashMap<FileName, File>,
}

impl Files {
    pub(super) fn hold(&mut self, name: FileName, file: File) {
        if self.held.len() < HELD {
            self.held.entry(name).or_insert(file);
        }
    }

    /// A path that leads to the file of these mappings, all of the same file.
    ///
    /// # Errors
    /// Why there is none, in words.
    pub(super) fn find(&self, mappings: &[&Mapping]) -> Result<PathBuf, String> {
        let Some(first) = mappings.first() else { return Err("no file".into()) };
        if let Some(held) = self.held.get(&(first.path.clone(), first.build_id.clone())) {
            return Ok(PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd())));
        }
        let mut reason = None;
        let candidates = mappings.iter().take(TRIES).flat_map(|m| in_process(m));
        for candidate in candidates.chain([PathBuf::from(&first.path)]) {
            match File::open(&candidate) {
                Err(e) => {
                    reason.get_or_insert_with(|| e.to_string());
                }
                // Without a build id there is nothing to compare, and the path has to do.
                Ok(_) if first.build_id.is_empty() => return Ok(candidate),
                Ok(file) => match elf::build_id(file) {
                    Ok(id) if id == first.build_id => return Ok(candidate),
                    Ok(_) => reason = Some("the file was replaced since: its build id differs".into()),
                    Err(e) => reason = Some(e.to_string()),
                },
            }
        }
        Err(format!("{}: {}", first.path, reason.unwrap_or_default()))
    }
}

fn in_process(mapping: &Mapping) -> Vec<PathBuf> {
    let root = PathBuf::from(format!("/proc/{}/root", mapping.pid));
    let rooted = root.join(Path::new(&mapping.path).strip_prefix("/").unwrap_or(Path::new(&mapping.path)));
    if mapping.build_id.is_empty() {
        // The id may have been given to another process: only a build id could tell what is mapped there.
        return vec![rooted];
    }
    let mapped = format!("/proc/{}/map_files/{:x}-{:x}", mapping.pid, mapping.start, mapping.end);
    vec![PathBuf::from(mapped), rooted]
}
