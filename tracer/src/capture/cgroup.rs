//! Quota, throttling and memory limits of the targets' control groups, v1 and v2.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::host;
use crate::trace::CgroupTick;

/// Groups followed at once; a target's own groups come before their parents.
const GROUPS: usize = 128;
/// An unchanged group is written again this often, in ticks (about once a second).
const REPEAT: u32 = 6;

/// Where one hierarchy is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Hierarchy {
    unified: bool,
    /// Controllers of a v1 hierarchy.
    controllers: Vec<String>,
    /// Group that the mount shows as its root.
    root: String,
    point: PathBuf,
}

/// The groups of all targets, and what was last written of each.
#[derive(Debug)]
pub struct Cgroups {
    hierarchies: Vec<Hierarchy>,
    /// Folders by group path: the same path may stand in several hierarchies.
    groups: BTreeMap<String, Group>,
    /// Groups left out because there were too many.
    pub left_out: u64,
}

#[derive(Debug, Default)]
struct Group {
    folders: Vec<(bool, PathBuf)>,
    last: Option<CgroupTick>,
    age: u32,
}

impl Cgroups {
    #[must_use]
    pub fn new() -> Self {
        let text = fs::read("/proc/self/mountinfo").unwrap_or_default();
        Self {
            hierarchies: hierarchies(&String::from_utf8_lossy(&text)),
            groups: BTreeMap::new(),
            left_out: 0,
        }
    }

    /// Follows the groups of a target and their parents, which may hold the quota.
    pub fn follow(&mut self, memberships: &[(String, String)]) {
        for (controllers, path) in memberships {
            for group in ancestors(path) {
                self.follow_one(controllers, group);
            }
        }
    }

    fn follow_one(&mut self, controllers: &str, path: &str) {
        let wanted = ["cpu", "memory"];
        for hierarchy in &self.hierarchies {
            let belongs = if controllers.is_empty() {
                hierarchy.unified
            } else {
                hierarchy
                    .controllers
                    .iter()
                    .any(|c| wanted.contains(&c.as_str()) && controllers.split(',').any(|named| named == c))
            };
            let Some(folder) = belongs.then(|| hierarchy.folder(path)).flatten() else { continue };
            if !self.groups.contains_key(path) && self.groups.len() >= GROUPS {
                self.left_out += 1;
                return;
            }
            let group = self.groups.entry(path.to_owned()).or_default();
            if !group.folders.iter().any(|(_, f)| *f == folder) && folder.is_dir() {
                group.folders.push((hierarchy.unified, folder));
            }
        }
    }

    /// What changed since the last tick; groups that are gone are forgotten.
    pub fn tick(&mut self) -> Vec<CgroupTick> {
        let mut ticks = Vec::new();
        self.groups.retain(|path, group| {
            group.folders.retain(|(_, folder)| folder.is_dir());
            let tick = read(path, &group.folders);
            group.age += 1;
            let changed = group.last.as_ref().is_none_or(|l| CgroupTick { at: tick.at, ..l.clone() } != tick);
            if changed || group.age >= REPEAT {
                group.age = 0;
                group.last = Some(tick.clone());
                ticks.push(tick);
            }
            !group.folders.is_empty()
        });
        ticks
    }
}

impl Default for Cgroups {
    fn default() -> Self {
        Self::new()
    }
}

impl Hierarchy {
    fn folder(&self, path: &str) -> Option<PathBuf> {
        let rest = if self.root == "/" { path } else { path.strip_prefix(&self.root)? };
        // `..` stands in a path seen from inside another cgroup namespace.
        let inside = !rest.split('/').any(|part| part == "..");
        inside.then(|| self.point.join(rest.trim_start_matches('/')))
    }
}

/// Processes listed in a group and in the groups below it.
#[must_use]
pub fn members(folder: &Path) -> Vec<u32> {
    let mut pids = Vec::new();
    let mut left = vec![folder.to_path_buf()];
    while let Some(folder) = left.pop() {
        let listed = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
        pids.extend(listed.lines().filter_map(|l| l.parse::<u32>().ok()).filter(|p| *p != 0));
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        left.extend(entries.flatten().filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()));
    }
    pids.sort_unstable();
    pids.dedup();
    pids
}

/// The group itself, then its parents; not the root, which has no limits.
fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |p| p.rsplit_once('/').map(|(parent, _)| parent))
        .take_while(|p| !p.is_empty() && *p != "/")
}

fn read(path: &str, folders: &[(bool, PathBuf)]) -> CgroupTick {
    let mut tick = CgroupTick { at: host::now(), path: path.to_owned(), ..CgroupTick::default() };
    for (unified, folder) in folders {
        let text = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_default();
        let stat = text("cpu.stat");
        let (quota, period, throttled_ns, hits);
        if *unified {
            let max = text("cpu.max");
            let mut fields = max.split_whitespace();
            quota = fields.next().and_then(|q| q.parse().ok());
            period = fields.next().and_then(|p| p.parse().ok());
            throttled_ns = keyed(&stat, "throttled_usec").map(|us| us.saturating_mul(1000));
            hits = keyed(&text("memory.events"), "max");
        } else {
            // -1: no quota.
            quota = text("cpu.cfs_quota_us").trim().parse().ok();
            period = text("cpu.cfs_period_us").trim().parse().ok();
            throttled_ns = keyed(&stat, "throttled_time");
            hits = text("memory.failcnt").trim().parse().ok();
        }
        if quota.is_some() {
            (tick.quota_us, tick.period_us) = (quota, period);
        }
        tick.throttled_count = tick.throttled_count.max(keyed(&stat, "nr_throttled").unwrap_or(0));
        tick.throttled_ns = tick.throttled_ns.max(throttled_ns.unwrap_or(0));
        tick.memory_limit_hits = tick.memory_limit_hits.max(hits.unwrap_or(0));
    }
    tick
}

fn keyed(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|l| l.split_once(' ').filter(|(k, _)| *k == key)?.1.trim().parse().ok())
}

fn hierarchies(mountinfo: &str) -> Vec<Hierarchy> {
    mountinfo
        .lines()
        .filter_map(|line| {
            let (mount, super_block) = line.split_once(" - ")?;
            let mut mount = mount.split(' ').skip(3);
            let (root, point) = (mount.next()?.to_owned(), PathBuf::from(mount.next()?));
            let mut fields = super_block.split(' ');
            let unified = match fields.next()? {
                "cgroup2" => true,
                "cgroup" => false,
                _ => return None,
            };
            let controllers = fields.nth(1)?.split(',').map(str::to_owned).collect();
            Some(Hierarchy { unified, controllers, root, point })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_of_both_versions_are_found() {
        let text = "\
30 25 0:26 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
31 25 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
32 25 0:28 / /proc rw - proc proc rw
";
        let found = hierarchies(text);
        assert_eq!(found.len(), 2);
        assert!(found[0].controllers.contains(&"cpu".to_owned()) && !found[0].unified);
        assert!(found[1].unified);
    }

    #[test]
    fn parents_are_followed_up_to_the_root() {
        assert_eq!(ancestors("/a/b/c").collect::<Vec<_>>(), ["/a/b/c", "/a/b", "/a"]);
        assert_eq!(ancestors("/").count(), 0);
        assert_eq!(ancestors("").count(), 0);
    }

    #[test]
    fn a_group_outside_the_mount_has_no_folder() {
        let h = Hierarchy { unified: true, controllers: vec![], root: "/pod".into(), point: "/cg".into() };
        assert_eq!(h.folder("/pod/x"), Some("/cg/x".into()));
        assert_eq!(h.folder("/other"), None);
        assert_eq!(h.folder("/pod/../../etc"), None);
    }

    fn group(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(folder.path().join(name), text).unwrap();
        }
        folder
    }

    #[test]
    fn limits_of_both_versions_are_read() {
        let v1 = group(&[
            ("cpu.cfs_quota_us", "20000\n"),
            ("cpu.cfs_period_us", "100000\n"),
            ("cpu.stat", "nr_periods 9\nnr_throttled 3\nthrottled_time 700\n"),
            ("memory.failcnt", "5\n"),
        ]);
        let v2 = group(&[
            ("cpu.max", "20000 100000\n"),
            ("cpu.stat", "usage_usec 1\nnr_throttled 3\nthrottled_usec 7\n"),
            ("memory.events", "low 0\nhigh 0\nmax 5\n"),
        ]);
        let read = |unified, folder: &tempfile::TempDir| {
            let t = read("/x", &[(unified, folder.path().into())]);
            (t.quota_us, t.period_us, t.throttled_count, t.throttled_ns, t.memory_limit_hits)
        };
        assert_eq!(read(false, &v1), (Some(20_000), Some(100_000), 3, 700, 5));
        assert_eq!(read(true, &v2), (Some(20_000), Some(100_000), 3, 7_000, 5));
    }

    #[test]
    fn no_quota_is_none() {
        let v1 = group(&[("cpu.cfs_quota_us", "-1\n"), ("cpu.cfs_period_us", "100000\n")]);
        let v2 = group(&[("cpu.max", "max 100000\n")]);
        for (unified, folder) in [(false, &v1), (true, &v2)] {
            assert_eq!(read("/x", &[(unified, folder.path().into())]).quota_us, None);
        }
    }

    #[test]
    fn an_unchanged_group_is_repeated_only_once_a_second_and_a_gone_one_forgotten() {
        let folder = group(&[("cpu.max", "max 100000\n")]);
        let mut cgroups = Cgroups { hierarchies: vec![], groups: BTreeMap::new(), left_out: 0 };
        let group = Group { folders: vec![(true, folder.path().into())], ..Group::default() };
        cgroups.groups.insert("/x".into(), group);
        let written: Vec<usize> = (0..8).map(|_| cgroups.tick().len()).collect();
        assert_eq!(written, [1, 0, 0, 0, 0, 0, 1, 0]);
        fs::write(folder.path().join("cpu.max"), "20000 100000\n").unwrap();
        assert_eq!(cgroups.tick().len(), 1);
        folder.close().unwrap();
        cgroups.tick();
        assert!(cgroups.groups.is_empty());
    }
}
