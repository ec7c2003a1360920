//! The few `bpf(2)` calls that aya 0.14 has no words for: a program with an expected attach type of our choice,
//! and one link on many offsets of a file.

use std::ffi::{CString, c_long, c_uint};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use aya_obj::generated::{bpf_attach_type, bpf_attr, bpf_cmd, bpf_insn, bpf_map_type, bpf_prog_type};

/// `BPF_F_UPROBE_MULTI_RETURN`.
const MULTI_RETURN: u32 = 1;
/// `BPF_F_MMAPABLE`.
const MMAPABLE: u32 = 1 << 10;
/// Bytes for the verifier's answer, which is read only when it refuses.
const LOG_BYTES: usize = 64 << 10;

fn bpf(command: bpf_cmd, attr: &mut bpf_attr) -> io::Result<c_long> {
    // SAFETY: a whole attribute, zeroed where not set, whose pointers the callers keep alive.
    let r = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command as c_uint,
            std::ptr::from_mut(attr),
            size_of::<bpf_attr>() as c_uint,
        )
    };
    if r < 0 { Err(io::Error::last_os_error()) } else { Ok(r) }
}

fn zeroed() -> bpf_attr {
    // SAFETY: plain data, for which zeros mean "not given".
    unsafe { std::mem::zeroed() }
}

fn owned(fd: c_long) -> io::Result<OwnedFd> {
    let fd = i32::try_from(fd).map_err(io::Error::other)?;
    // SAFETY: the kernel has just opened it for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// What a program's functions are, by the kernel's type information. Without it the verifier takes none of them
/// for a global one, and walks each at every call.
#[derive(Clone, Debug)]
pub(super) struct Types {
    pub(super) btf: Arc<OwnedFd>,
    pub(super) functions: Vec<u8>,
    pub(super) count: u32,
    pub(super) record_bytes: u32,
}

/// Type information that the kernel already has.
pub(super) fn btf(id: u32) -> io::Result<OwnedFd> {
    let mut attr = zeroed();
    attr.__bindgen_anon_6.__bindgen_anon_1.btf_id = id;
    owned(bpf(bpf_cmd::BPF_BTF_GET_FD_BY_ID, &mut attr)?)
}

/// Loads a uprobe program: for links of many offsets, or for a perf event.
///
/// # Errors
/// The kernel's, with the verifier's last line where it has one.
pub(super) fn load_uprobe(
    name: &str,
    instructions: &[bpf_insn],
    license: &CString,
    types: Option<&Types>,
    multi: bool,
) -> Result<OwnedFd, String> {
    let mut attr = zeroed();
    // SAFETY: this member is the one that the command reads.
    let load = unsafe { &mut attr.__bindgen_anon_3 };
    load.prog_type = bpf_prog_type::BPF_PROG_TYPE_KPROBE as u32;
    if multi {
        load.expected_attach_type = bpf_attach_type::BPF_TRACE_UPROBE_MULTI as u32;
    }
    load.insns = instructions.as_ptr() as u64;
    load.insn_cnt = u32::try_from(instructions.len()).map_err(|e| e.to_string())?;
    load.license = license.as_ptr() as u64;
    if let Some(types) = types {
        load.prog_btf_fd = types.btf.as_raw_fd().cast_unsigned();
        load.func_info = types.functions.as_ptr() as u64;
        load.func_info_cnt = types.count;
        load.func_info_rec_size = types.record_bytes;
    }
    for (to, from) in load.prog_name.iter_mut().zip(name.bytes().take(15)) {
        *to = from.cast_signed();
    }
    let first = match bpf(bpf_cmd::BPF_PROG_LOAD, &mut attr) {
        Ok(fd) => return owned(fd).map_err(|e| e.to_string()),
        Err(e) => e,
    };
    let mut log = vec![0u8; LOG_BYTES];
    // SAFETY: as above.
    let load = unsafe { &mut attr.__bindgen_anon_3 };
    (load.log_level, load.log_buf, load.log_size) = (1, log.as_mut_ptr() as u64, LOG_BYTES as u32);
    match bpf(bpf_cmd::BPF_PROG_LOAD, &mut attr) {
        Ok(fd) => owned(fd).map_err(|e| e.to_string()),
        Err(_) => {
            let end = log.iter().position(|b| *b == 0).unwrap_or(LOG_BYTES);
            let log = String::from_utf8_lossy(&log[..end]);
            let last =
                log.lines().rev().find(|l| !l.is_empty() && !l.starts_with("processed ")).unwrap_or("");
            Err(format!("the kernel refused the program: {first}; {last}"))
        }
    }
}

/// Where a link of many offsets is put.
#[derive(Clone, Copy, Debug)]
pub(super) struct MultiTarget<'a> {
    pub(super) path: &'a Path,
    /// Of the first byte of each function in the file.
    pub(super) offsets: &'a [u64],
    /// One each.
    pub(super) cookies: &'a [u64],
    pub(super) returns: bool,
}

/// One link for all offsets, in every process that maps the file (`uprobe_multi`, kernel 6.6).
pub(super) fn link_uprobes(program: BorrowedFd, target: MultiTarget) -> io::Result<OwnedFd> {
    let path = CString::new(target.path.as_os_str().as_bytes())?;
    let mut attr = zeroed();
    // SAFETY: this member is the one that the command reads.
    let link = unsafe { &mut attr.link_create };
    link.__bindgen_anon_1.prog_fd = program.as_raw_fd().cast_unsigned();
    link.attach_type = bpf_attach_type::BPF_TRACE_UPROBE_MULTI as u32;
    // SAFETY: the member of this attach type.
    let multi = unsafe { &mut link.__bindgen_anon_3.uprobe_multi };
    multi.path = path.as_ptr() as u64;
    multi.offsets = target.offsets.as_ptr() as u64;
    multi.cookies = target.cookies.as_ptr() as u64;
    multi.cnt = u32::try_from(target.offsets.len().min(target.cookies.len())).unwrap_or(u32::MAX);
    multi.flags = if target.returns { MULTI_RETURN } else { 0 };
    owned(bpf(bpf_cmd::BPF_LINK_CREATE, &mut attr)?)
}

/// An array whose values can be mapped into memory.
pub(super) fn create_mapped_array(name: &str, value_bytes: usize, entries: usize) -> io::Result<OwnedFd> {
    let mut attr = zeroed();
    // SAFETY: this member is the one that the command reads.
    let map = unsafe { &mut attr.__bindgen_anon_1 };
    map.map_type = bpf_map_type::BPF_MAP_TYPE_ARRAY as u32;
    map.key_size = 4;
    map.value_size = u32::try_from(value_bytes).map_err(io::Error::other)?;
    map.max_entries = u32::try_from(entries).map_err(io::Error::other)?;
    map.map_flags = MMAPABLE;
    for (to, from) in map.map_name.iter_mut().zip(name.bytes().take(15)) {
        *to = from.cast_signed();
    }
    owned(bpf(bpf_cmd::BPF_MAP_CREATE, &mut attr)?)
}

/// Fills the one row of a map of globals and makes it read-only, so that the verifier knows its values.
pub(super) fn seal_globals(map: BorrowedFd, data: &[u8]) -> io::Result<()> {
    let key = 0u32;
    let mut attr = zeroed();
    // SAFETY: this member is the one that the commands read.
    let row = unsafe { &mut attr.__bindgen_anon_2 };
    row.map_fd = map.as_raw_fd().cast_unsigned();
    row.key = std::ptr::from_ref(&key) as u64;
    row.__bindgen_anon_1.value = data.as_ptr() as u64;
    bpf(bpf_cmd::BPF_MAP_UPDATE_ELEM, &mut attr)?;
    let mut attr = zeroed();
    attr.__bindgen_anon_2.map_fd = map.as_raw_fd().cast_unsigned();
    bpf(bpf_cmd::BPF_MAP_FREEZE, &mut attr)?;
    Ok(())
}

/// What the kernel says of a program or link that is held open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FdInfo {
    pub(super) program: Option<u32>,
    pub(super) link: Option<u32>,
    /// Counted only while the kernel keeps statistics of programs.
    pub(super) runs: u64,
    pub(super) run_ns: u64,
    /// Runs skipped because the program would have re-entered itself.
    pub(super) missed: u64,
}

/// `None`: it cannot be read.
pub(super) fn fd_info(fd: impl AsFd) -> Option<FdInfo> {
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_fd().as_raw_fd())).ok()?;
    Some(parse_fd_info(&text))
}

fn parse_fd_info(text: &str) -> FdInfo {
    let field = |name: &str| {
        text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':')?.trim().parse::<u64>().ok())
    };
    let id = |name| field(name).and_then(|id| u32::try_from(id).ok());
    FdInfo {
        program: id("prog_id"),
        link: id("link_id"),
        runs: field("run_cnt").unwrap_or(0),
        run_ns: field("run_time_ns").unwrap_or(0),
        missed: field("recursion_misses").unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fdinfo_of_programs_and_links() {
        let text =
            "pos:\t0\nprog_type:\t2\nprog_id:\t77\nrun_time_ns:\t900\nrun_cnt:\t3\nrecursion_misses:\t12\n";
        let program = FdInfo { program: Some(77), link: None, runs: 3, run_ns: 900, missed: 12 };
        assert_eq!(parse_fd_info(text), program);
        let text = "link_type:\tuprobe_multi\nlink_id:\t9\nprog_tag:\tab\nprog_id:\t77\n";
        assert_eq!(parse_fd_info(text), FdInfo { program: Some(77), link: Some(9), ..FdInfo::default() });
        assert_eq!(parse_fd_info(""), FdInfo::default());
    }
}
