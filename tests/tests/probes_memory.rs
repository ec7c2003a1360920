//! Page faults, reclaim, compaction and swap: provoked, and told with the process that had to wait for them.

use std::ffi::CString;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serial_test::file_serial;
use whyidle::capture::tracer::Config;
use whyidle::trace::{FaultTotal, Reclaim, ReclaimKind, Record};
use whyidle_tests::privileged::{Child, Observed, attach, lacking, observe, observe_with};

const PAGE: usize = 4096;
const MIB: usize = 1 << 20;

fn quiet() -> Config {
    Config { sample_hz: 0, ..Config::default() }
}

fn reclaims(seen: &Observed, kind: ReclaimKind) -> Vec<&Reclaim> {
    let of_kind = |r: &&Reclaim| r.kind == kind;
    let all = seen.records.iter().filter_map(|r| if let Record::Reclaim(r) = r { Some(r) } else { None });
    all.filter(of_kind).collect()
}

fn faults(seen: &Observed) -> impl Iterator<Item = &FaultTotal> {
    seen.records.iter().filter_map(|r| if let Record::FaultTotal(f) = r { Some(f) } else { None })
}

/// A group with a memory limit, removed when the test ends: of the v1 controller, or of the unified hierarchy.
struct Group(PathBuf);

impl Group {
    fn limited_to(bytes: usize) -> Self {
        Self::with_limit(bytes, "memory.max")
    }

    /// Not killed where the swap is too slow to take what is over.
    fn pressed_to(bytes: usize) -> Self {
        Self::with_limit(bytes, "memory.high")
    }

    /// The first version of control groups has the one limit.
    fn with_limit(bytes: usize, unified: &'static str) -> Self {
        let name = format!("probes-memory-{}", std::process::id());
        let v1 = Path::new("/sys/fs/cgroup/memory");
        let (root, limit) = if v1.join("memory.limit_in_bytes").exists() {
            (v1, "memory.limit_in_bytes")
        } else {
            let root = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"].map(Path::new);
            let root = root.into_iter().find(|p| p.join("cgroup.subtree_control").exists());
            let root = root.expect("a memory controller");
            fs::write(root.join("cgroup.subtree_control"), "+memory").expect("the memory controller");
            (root, unified)
        };
        let group = Self(root.join(name));
        fs::create_dir(&group.0).expect("a new group");
        fs::write(group.0.join(limit), bytes.to_string()).expect("a limit");
        group
    }

    fn join(&self) {
        fs::write(self.0.join("cgroup.procs"), std::process::id().to_string()).expect("joins the group");
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

fn folder() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("probes").tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder")
}

/// Fresh memory of small pages, never given back.
fn pages(count: usize) -> *mut u8 {
    // SAFETY: a new anonymous mapping.
    unsafe {
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let map = libc::mmap(std::ptr::null_mut(), count * PAGE, prot, flags, -1, 0);
        assert_ne!(map, libc::MAP_FAILED);
        libc::madvise(map, count * PAGE, libc::MADV_NOHUGEPAGE);
        map.cast()
    }
}

fn touch(memory: *mut u8, count: usize) {
    for page in 0..count {
        // SAFETY: within what `pages` gave.
        unsafe { memory.add(page * PAGE).write_volatile(1) };
    }
}

/// Reads a file four times as large as the group may hold.
fn read_past_the_limit(threshold_ns: u64) -> Observed {
    let folder = folder();
    let path = folder.path().join("large.bin");
    fs::File::create(&path).and_then(|mut f| f.write_all(&vec![7; 64 * MIB])).expect("a file");
    let group = Group::limited_to(16 * MIB);
    // Written by this group's pages: they must not be there when the other reads.
    let file = fs::File::open(&path).expect("open");
    file.sync_all().expect("sync");
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("advice");
    let seen = observe(&Config { threshold_ns, ..quiet() }, || {
        group.join();
        let mut file = fs::File::open(&path).expect("open");
        let mut bytes = vec![0; MIB];
        while file.read(&mut bytes).expect("read") > 0 {}
    });
    drop(group);
    seen
}

#[test]
#[file_serial(probes)]
fn reclaim_within_a_limit_is_told_one_by_one() {
    assert_eq!(lacking("memcg_begin").or_else(|| lacking("memcg_end")), None, "every kernel of the matrix");
    let seen = read_past_the_limit(0);
    let reclaims = reclaims(&seen, ReclaimKind::Cgroup);
    assert!(!reclaims.is_empty());
    let main = seen.main_thread();
    for r in &reclaims {
        assert_eq!((r.thread, r.pid, r.count, r.ns), (main, seen.pid, 1, r.span.len()));
    }
    // 48 MiB did not fit; reclaim frees in batches and read-ahead may come on top.
    let freed: u64 = reclaims.iter().map(|r| r.pages).sum();
    assert!(freed as usize * PAGE >= 40 * MIB, "{freed} pages");
    assert!(reclaims.windows(2).all(|w| w[0].span.end <= w[1].span.start), "one after another");
}

#[test]
#[file_serial(probes)]
fn short_reclaims_are_added_up() {
    let seen = read_past_the_limit(u64::MAX);
    let reclaims = reclaims(&seen, ReclaimKind::Cgroup);
    let main = seen.main_thread();
    assert!(!reclaims.is_empty() && reclaims.iter().all(|r| r.thread == main && r.pid == seen.pid));
    let (count, freed) = reclaims.iter().fold((0, 0), |(c, p), r| (c + r.count, p + r.pages));
    assert!(count > reclaims.len() as u64, "{count} in {} totals", reclaims.len());
    assert!(freed as usize * PAGE >= 40 * MIB, "{freed} pages");
    assert!(reclaims.iter().all(|r| r.ns > 0 && !r.span.is_empty()));
}

#[test]
#[file_serial(probes)]
fn compaction_is_the_work_of_who_asks_for_it() {
    let ask = Path::new("/proc/sys/vm/compact_memory");
    assert!(ask.exists() && lacking("compact_begin").is_none() && lacking("compact_end").is_none());
    let seen = observe(&Config { threshold_ns: 0, ..quiet() }, || fs::write(ask, "1").expect("compact"));
    let compactions = reclaims(&seen, ReclaimKind::Compaction);
    assert!(!compactions.is_empty());
    for c in compactions {
        assert_eq!((c.thread, c.pid, c.count, c.ns), (seen.main_thread(), seen.pid, 1, c.span.len()));
    }
}

#[test]
#[file_serial(probes)]
fn minor_faults_are_counted_per_process_never_recorded() {
    const TOUCHED: usize = 5000;
    let told = folder();
    let told_path = told.path().join("faults");
    let memory = pages(TOUCHED);
    let seen = observe(&quiet(), || {
        touch(memory, TOUCHED);
        let usage = own_minor_faults();
        fs::write(&told_path, usage.to_string()).expect("told");
    });
    let own: Vec<_> = faults(&seen).filter(|f| f.pid == seen.pid).collect();
    let minor: u64 = own.iter().map(|f| f.minor).sum();
    let all: u64 = fs::read_to_string(&told_path).expect("told").parse().expect("a number");
    assert!(minor >= TOUCHED as u64, "{minor} of {TOUCHED}");
    // It faults a little more until it sleeps; what it did before it was a target is in its own number.
    assert!(minor <= all + 200, "{minor}, and {all} in its whole life");
    assert!(own.windows(2).all(|w| w[0].span.end == w[1].span.start), "{own:?}");
    assert!(seen.records.len() < TOUCHED / 10, "{} records", seen.records.len());
}

/// Minor faults of the calling process so far.
fn own_minor_faults() -> i64 {
    // SAFETY: plain data, filled by the call.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_SELF, &raw mut usage), 0);
        usage.ru_minflt
    }
}

#[test]
#[file_serial(probes)]
fn faults_of_a_child_that_is_gone_are_not_lost() {
    const TOUCHED: usize = 3000;
    let memory = pages(TOUCHED);
    let seen = observe(&quiet(), || {
        // SAFETY: the child only writes memory of its own, on two threads, and leaves.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                let half = memory as usize;
                let thread = std::thread::spawn(move || touch(half as *mut u8, TOUCHED / 2));
                touch(memory.add(TOUCHED / 2 * PAGE), TOUCHED / 2);
                thread.join().expect("joined");
                libc::_exit(0);
            }
            assert_eq!(libc::waitpid(child, std::ptr::null_mut(), 0), child);
        }
    });
    let minor: u64 = faults(&seen).filter(|f| f.pid != seen.pid).map(|f| f.minor).sum();
    assert!(minor >= TOUCHED as u64, "{minor} of {TOUCHED}");
}

/// A swap file in use, taken out and removed when the test ends.
struct Swap(CString, #[expect(dead_code, reason = "holds the file's folder")] tempfile::TempDir);

impl Swap {
    fn on(bytes: usize) -> Self {
        let folder = folder();
        let path = folder.path().join("swap");
        let mut file = fs::File::create(&path).expect("create");
        file.set_permissions(fs::Permissions::from_mode(0o600)).expect("permissions");
        // `union swap_header`: version and last page, the signature at the end of the page.
        let mut header = vec![0; PAGE];
        header[1024..1028].copy_from_slice(&1u32.to_le_bytes());
        header[1028..1032].copy_from_slice(&u32::try_from(bytes / PAGE - 1).expect("small").to_le_bytes());
        header[PAGE - 10..].copy_from_slice(b"SWAPSPACE2");
        file.write_all(&header).and_then(|()| file.write_all(&vec![0; bytes - PAGE])).expect("write");
        file.sync_all().expect("sync");
        let path = CString::new(path.to_str().expect("text")).expect("no NUL");
        // SAFETY: a path that ends with NUL.
        let done = unsafe { libc::swapon(path.as_ptr(), 0) };
        assert_eq!(done, 0, "swapon: {}", std::io::Error::last_os_error());
        Self(path, folder)
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        // SAFETY: as above.
        if unsafe { libc::swapoff(self.0.as_ptr()) } != 0 {
            eprintln!("swapoff: {}", std::io::Error::last_os_error());
        }
    }
}

/// Where a function of the kernel begins and ends.
fn kernel_function(name: &str) -> (u64, u64) {
    let symbols = fs::read_to_string("/proc/kallsyms").expect("kallsyms");
    let mut text: Vec<(u64, &str)> = symbols
        .lines()
        .filter_map(|l| {
            let mut parts = l.split_ascii_whitespace();
            Some((u64::from_str_radix(parts.next()?, 16).ok()?, parts.nth(1)?))
        })
        .collect();
    text.sort_unstable();
    let (start, _) = *text.iter().find(|(_, n)| *n == name).expect("the function");
    let (end, _) = *text.iter().find(|(at, _)| *at > start).expect("one behind it");
    (start, end)
}

#[test]
#[file_serial(probes)]
fn swapping_in_is_told_from_the_kernel_stack() {
    const SIZE: usize = 12 * MIB / PAGE;
    let status = attach(&quiet()).probes().into_iter().find(|s| s.name == "swap_in").expect("a row");
    assert!(!status.attached && status.reason.contains("stacks"), "{status:?}");
    let _swap = Swap::on(64 * MIB);
    let group = Group::pressed_to(4 * MIB);
    let memory = pages(SIZE);
    let child = Child::fork_prepared(
        || {
            group.join();
            touch(memory, SIZE);
        },
        || touch(memory, SIZE),
    );
    let tracer = attach(&Config { threshold_ns: 0, ..quiet() });
    let seen = observe_with(tracer, child);
    let (start, end) = kernel_function("do_swap_page");
    let swapped = seen.waits().filter(|w| {
        w.syscall.is_none()
            && w.kernel_stack != 0
            && seen.stack(w.kernel_stack).iter().any(|a| (start..end).contains(a))
    });
    assert!(swapped.count() > 0);
    let major: u64 = faults(&seen).filter(|f| f.pid == seen.pid).map(|f| f.major).sum();
    assert!(major > 0, "from the process's own counters");
    let anonymous = |r: &&Record| matches!(r, Record::MajorFault(f) if f.pid == seen.pid && f.file.is_none());
    assert!(seen.records.iter().filter(anonymous).count() > 0);
}
