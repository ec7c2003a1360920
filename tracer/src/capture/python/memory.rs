//! Another process's memory, which may hold anything and change while it is read.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// What can be read by address.
pub(super) trait Memory {
    /// `None` unless all of `to` could be read.
    fn read(&self, address: u64, to: &mut [u8]) -> Option<()>;

    fn word(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Some(u64::from_le_bytes(bytes))
    }

    fn word_at(&self, base: u64, offset: u64) -> Option<u64> {
        self.word(base.checked_add(offset)?)
    }

    /// A pointer that is not null.
    fn pointer(&self, base: u64, offset: u64) -> Option<u64> {
        self.word_at(base, offset).filter(|p| *p != 0)
    }

    fn int(&self, base: u64, offset: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        self.read(base.checked_add(offset)?, &mut bytes)?;
        Some(u32::from_le_bytes(bytes))
    }

    fn bytes(&self, base: u64, offset: u64, length: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.read(base.checked_add(offset)?, &mut bytes)?;
        Some(bytes)
    }
}

/// `/proc/<pid>/mem`.
#[derive(Debug)]
pub(super) struct ProcessMemory(File);

impl ProcessMemory {
    /// `None`: it is gone, or not ours to look at.
    pub(super) fn open(pid: u32) -> Option<Self> {
        File::open(format!("/proc/{pid}/mem")).ok().map(Self)
    }
}

impl Memory for ProcessMemory {
    fn read(&self, address: u64, to: &mut [u8]) -> Option<()> {
        self.0.read_exact_at(to, address).ok()
    }
}

/// Bytes from an address on; nothing else can be read. For tests and fuzzing.
#[derive(Debug)]
pub(super) struct Fake {
    pub(super) base: u64,
    pub(super) bytes: Vec<u8>,
}

impl Memory for Fake {
    fn read(&self, address: u64, to: &mut [u8]) -> Option<()> {
        let at = usize::try_from(address.checked_sub(self.base)?).ok()?;
        to.copy_from_slice(self.bytes.get(at..at.checked_add(to.len())?)?);
        Some(())
    }
}

#[cfg(test)]
impl Fake {
    pub(super) fn put(&mut self, address: u64, bytes: &[u8]) {
        let at = (address - self.base) as usize;
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }
}
