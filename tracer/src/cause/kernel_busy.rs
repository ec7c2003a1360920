//! What a thread on the processor does inside the kernel, from a sample's stack: one row per name of a function, as in
//! the table of sleeps.

use super::Mechanism;
use super::kernel_names::best;
use crate::timeline::NamedFrame;

/// What a thread that is on the processor does inside the kernel, where that names a mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Busy {
    Swap,
    Reclaim,
    /// Brings a page of a mapped file in, or looks it up.
    FileFault,
    /// Fills the page cache, or hands requests to a disk; what a write does all is for that.
    FileIo,
    /// Gets fresh memory, or gives it back: the two ends of allocating each step anew.
    FaultZeroing,
    /// Copies out of the page cache.
    CachedRead,
}

const BUSY: &[(&str, Busy)] = &[
    ("do_swap_page", Busy::Swap),
    ("swap_read*", Busy::Swap),
    ("swapin_*", Busy::Swap),
    ("shmem_swapin*", Busy::Swap),
    ("swap_cluster_readahead", Busy::Swap),
    ("swap_vma_readahead", Busy::Swap),
    ("try_to_free_pages", Busy::Reclaim),
    ("try_to_free_mem_cgroup_pages", Busy::Reclaim),
    ("shrink_*", Busy::Reclaim),
    ("compact_zone*", Busy::Reclaim),
    ("try_to_compact_pages", Busy::Reclaim),
    ("isolate_*", Busy::Reclaim),
    ("filemap_fault", Busy::FileFault),
    ("*_filemap_fault", Busy::FileFault),
    ("filemap_map_pages", Busy::FileFault),
    ("do_read_fault", Busy::FileFault),
    ("do_fault_around", Busy::FileFault),
    ("submit_bio*", Busy::FileIo),
    ("__submit_bio*", Busy::FileIo),
    ("blk_mq_submit_bio", Busy::FileIo),
    ("blk_finish_plug", Busy::FileIo),
    ("__blk_flush_plug", Busy::FileIo),
    ("blk_mq_*run_hw_queue*", Busy::FileIo),
    ("read_pages", Busy::FileIo),
    ("page_cache_ra_order", Busy::FileIo),
    ("page_cache_sync_*", Busy::FileIo),
    ("page_cache_async_*", Busy::FileIo),
    ("page_cache_ra_unbounded", Busy::FileIo),
    ("page_cache_readahead_unbounded", Busy::FileIo),
    ("__do_page_cache_readahead", Busy::FileIo),
    ("force_page_cache_*", Busy::FileIo),
    ("filemap_create_folio", Busy::FileIo),
    ("filemap_add_folio", Busy::FileIo),
    ("add_to_page_cache_lru", Busy::FileIo),
    ("do_writepages", Busy::FileIo),
    ("generic_perform_write", Busy::FileIo),
    ("iomap_file_buffered_write", Busy::FileIo),
    ("iomap_write_*", Busy::FileIo),
    ("btrfs_buffered_write", Busy::FileIo),
    ("clear_page*", Busy::FaultZeroing),
    ("clear_huge_page*", Busy::FaultZeroing),
    ("clear_subpage*", Busy::FaultZeroing),
    ("folio_zero_user*", Busy::FaultZeroing),
    ("do_anonymous_page", Busy::FaultZeroing),
    ("do_huge_pmd_anonymous_page", Busy::FaultZeroing),
    ("__do_huge_pmd_anonymous_page", Busy::FaultZeroing),
    ("vma_alloc_anon_folio*", Busy::FaultZeroing),
    ("alloc_anon_folio", Busy::FaultZeroing),
    ("exc_page_fault", Busy::FaultZeroing),
    ("do_user_addr_fault", Busy::FaultZeroing),
    ("handle_mm_fault", Busy::FaultZeroing),
    ("__handle_mm_fault", Busy::FaultZeroing),
    ("unmap_page_range", Busy::FaultZeroing),
    ("zap_pte_range", Busy::FaultZeroing),
    ("zap_present_*", Busy::FaultZeroing),
    ("wp_page_copy", Busy::FaultZeroing),
    ("do_cow_fault", Busy::FaultZeroing),
    ("filemap_read", Busy::CachedRead),
    ("generic_file_buffered_read", Busy::CachedRead),
];

/// What a sample's kernel stack shows, `None` for plain work.
pub(crate) fn busy(frames: &[NamedFrame]) -> Option<Busy> {
    best(BUSY, own(frames))
}

/// What a thread does in [`Busy::FileIo`] for, by the call around it. The order is the rank.
const FOR: &[(&str, Mechanism)] = &[
    ("vfs_write", Mechanism::StorageWrite),
    ("vfs_writev", Mechanism::StorageWrite),
    ("vfs_fsync*", Mechanism::StorageWrite),
    ("do_writepages", Mechanism::StorageWrite),
    ("ksys_sync*", Mechanism::StorageWrite),
    ("vfs_statx", Mechanism::StorageMetadata),
    ("path_openat", Mechanism::StorageMetadata),
    ("filename_lookup", Mechanism::StorageMetadata),
    ("iterate_dir", Mechanism::StorageMetadata),
    ("fuse_*", Mechanism::NetworkFs),
    ("nfs_*", Mechanism::NetworkFs),
    ("cifs_*", Mechanism::NetworkFs),
    ("ceph_*", Mechanism::NetworkFs),
];

/// The mechanism of work on files: reading, where no function around it says otherwise.
pub(crate) fn file_work(frames: &[NamedFrame]) -> Mechanism {
    let remote = |m: &Mechanism| *m == Mechanism::NetworkFs;
    let rows = || own(frames).iter().filter_map(|f| best(FOR, std::slice::from_ref(f)));
    rows().find(remote).or_else(|| rows().min()).unwrap_or(Mechanism::StorageRead)
}

/// The thread's own frames: not those of an interrupt that came over it.
fn own(frames: &[NamedFrame]) -> &[NamedFrame] {
    let entry =
        |f: &NamedFrame| f.name.starts_with("asm_sysvec") || f.name.starts_with("asm_common_interrupt");
    let from = frames.iter().rposition(entry).map_or(0, |at| at + 1);
    &frames[from..]
}

#[cfg(test)]
mod tests {
    use super::super::kernel_names::frames;
    use super::*;

    #[test]
    fn every_class_has_a_row_and_no_row_is_hidden() {
        for &(pattern, class) in BUSY {
            assert_eq!(busy(&frames(&[&pattern.replace('*', "x")])), Some(class), "{pattern}");
        }
    }

    #[test]
    fn work_on_files_is_told_by_the_call_around_it() {
        let read = frames(&["virtqueue_notify", "blk_mq_run_hw_queue", "page_cache_ra_order", "vfs_read"]);
        assert_eq!((busy(&read), file_work(&read)), (Some(Busy::FileIo), Mechanism::StorageRead));
        let sync = frames(&["submit_bio_noacct", "do_writepages", "vfs_fsync_range"]);
        assert_eq!((busy(&sync), file_work(&sync)), (Some(Busy::FileIo), Mechanism::StorageWrite));
        let open = frames(&["submit_bio", "ext4_read_bh", "path_openat"]);
        assert_eq!((busy(&open), file_work(&open)), (Some(Busy::FileIo), Mechanism::StorageMetadata));
        let fuse = frames(&["fuse_readahead", "read_pages", "vfs_read"]);
        assert_eq!((busy(&fuse), file_work(&fuse)), (Some(Busy::FileIo), Mechanism::NetworkFs));
        let mapped = frames(&["submit_bio", "filemap_fault", "handle_mm_fault", "exc_page_fault"]);
        assert_eq!(busy(&mapped), Some(Busy::FileFault));
        let write = frames(&["copy_folio_from_iter_atomic", "generic_perform_write", "vfs_write"]);
        assert_eq!((busy(&write), file_work(&write)), (Some(Busy::FileIo), Mechanism::StorageWrite));
        // Another's request is done in an interrupt that came over this one.
        let over = frames(&["blk_mq_run_hw_queue", "asm_common_interrupt", "sha256_transform"]);
        assert_eq!(busy(&over), None);
        // A read of what is in memory waits for nothing, and is no Python either.
        let cached = frames(&["copy_page_to_iter", "filemap_read", "vfs_read"]);
        assert_eq!(busy(&cached), Some(Busy::CachedRead));
    }
}
