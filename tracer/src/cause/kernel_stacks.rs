//! What a sleeping thread's, or a waker's, kernel stack says: one table, one row per name of a function.
//!
//! Names drift between kernel versions (`wait_on_page_bit_common` became `folio_wait_bit_common`), so every
//! known name has a row of its own. A trailing `*` matches any ending. Suffixes the compiler adds
//! (`.constprop.0`, `.isra.0`, `.cold`) are cut before matching.

use super::kernel_names::{bare, best};
use crate::timeline::NamedFrame;

/// What a stack shows. The order is the rank: where several match, the smallest wins, because it is the more
/// specific account (reclaim inside a read is reclaim).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Sleep {
    Stopped,
    Fuse,
    RemoteFs,
    KernelLock,
    Swap,
    Reclaim,
    Write,
    Block,
    Timer,
    Child,
    Vfork,
    Accept,
    SocketRead,
    SocketWrite,
    Pipe,
    Poll,
    Futex,
    SysvIpc,
    IoUring,
    Terminal,
}

use Sleep as S;

const SLEEPS: &[(&str, Sleep)] = &[
    ("do_signal_stop", S::Stopped),
    ("do_freezer_trap", S::Stopped),
    ("ptrace_stop", S::Stopped),
    ("__refrigerator", S::Stopped),
    ("do_jobctl_trap", S::Stopped),
    ("request_wait_answer", S::Fuse),
    ("fuse_wait_on_page_writeback", S::Fuse),
    ("fuse_simple_request", S::Fuse),
    ("__fuse_simple_request", S::Fuse),
    ("fuse_get_req", S::Fuse),
    ("rpc_wait_bit_killable", S::RemoteFs),
    ("rpc_execute", S::RemoteFs),
    ("rpc_run_task", S::RemoteFs),
    ("nfs_*", S::RemoteFs),
    ("nfs3_*", S::RemoteFs),
    ("nfs4_*", S::RemoteFs),
    ("cifs_*", S::RemoteFs),
    ("smb2_*", S::RemoteFs),
    ("SMB2_*", S::RemoteFs),
    ("wait_for_response", S::RemoteFs),
    ("ceph_*", S::RemoteFs),
    ("p9_client_*", S::RemoteFs),
    ("afs_*", S::RemoteFs),
    ("netfs_*", S::RemoteFs),
    ("ll_file_*", S::RemoteFs),
    ("ptlrpc_*", S::RemoteFs),
    ("__mutex_lock*", S::KernelLock),
    ("mutex_lock*", S::KernelLock),
    ("__mutex_lock_slowpath", S::KernelLock),
    ("rwsem_down_read_slowpath", S::KernelLock),
    ("rwsem_down_write_slowpath", S::KernelLock),
    ("rwsem_down_*_failed*", S::KernelLock),
    ("call_rwsem_down_*", S::KernelLock),
    ("down_read*", S::KernelLock),
    ("down_write*", S::KernelLock),
    ("__down_common", S::KernelLock),
    ("__down_*", S::KernelLock),
    ("percpu_rwsem_wait", S::KernelLock),
    ("__percpu_down_read", S::KernelLock),
    ("rt_mutex_slowlock*", S::KernelLock),
    ("do_swap_page", S::Swap),
    ("swap_read_folio*", S::Swap),
    ("swap_readpage", S::Swap),
    ("swapin_readahead", S::Swap),
    ("shmem_swapin*", S::Swap),
    ("swap_cluster_readahead", S::Swap),
    ("swap_vma_readahead", S::Swap),
    ("__read_swap_cache_async", S::Swap),
    ("try_to_free_pages", S::Reclaim),
    ("try_to_free_mem_cgroup_pages", S::Reclaim),
    ("do_try_to_free_pages", S::Reclaim),
    ("shrink_*", S::Reclaim),
    ("__alloc_pages_direct_compact", S::Reclaim),
    ("__alloc_pages_direct_reclaim", S::Reclaim),
    ("__alloc_pages_slowpath", S::Reclaim),
    ("compact_zone*", S::Reclaim),
    ("try_to_compact_pages", S::Reclaim),
    ("reclaim_throttle", S::Reclaim),
    ("mem_cgroup_handle_over_high", S::Reclaim),
    ("__mem_cgroup_handle_over_high", S::Reclaim),
    ("mem_cgroup_oom_synchronize", S::Reclaim),
    ("jbd2_*", S::Write),
    ("jbd_*", S::Write),
    ("ext4_sync_file", S::Write),
    ("ext4_sync_fs", S::Write),
    ("xfs_file_fsync", S::Write),
    ("xlog_*", S::Write),
    ("xfs_log_*", S::Write),
    ("btrfs_sync_file", S::Write),
    ("btrfs_sync_log", S::Write),
    ("f2fs_do_sync_file", S::Write),
    ("vfs_fsync*", S::Write),
    ("do_fsync", S::Write),
    ("file_write_and_wait_range", S::Write),
    ("filemap_write_and_wait*", S::Write),
    ("__filemap_fdatawait_range", S::Write),
    ("filemap_fdatawait*", S::Write),
    ("balance_dirty_pages*", S::Write),
    ("wb_wait_*", S::Write),
    ("wb_writeback", S::Write),
    ("folio_wait_writeback", S::Write),
    ("wait_on_page_writeback", S::Write),
    ("folio_wait_stable", S::Write),
    ("wait_for_stable_page", S::Write),
    ("wait_log_commit", S::Write),
    ("sync_inodes_sb", S::Write),
    ("folio_wait_bit*", S::Block),
    ("folio_put_wait_locked", S::Block),
    ("__folio_lock*", S::Block),
    ("wait_on_page_bit*", S::Block),
    ("put_and_wait_on_page_locked", S::Block),
    ("__lock_page*", S::Block),
    ("wait_on_page_locked*", S::Block),
    ("filemap_update_page", S::Block),
    ("filemap_read", S::Block),
    ("filemap_get_pages", S::Block),
    ("filemap_fault", S::Block),
    ("generic_file_read_iter", S::Block),
    ("generic_file_buffered_read", S::Block),
    ("page_cache_ra_unbounded", S::Block),
    ("force_page_cache_ra", S::Block),
    ("io_schedule*", S::Block),
    ("bit_wait_io", S::Block),
    ("__wait_on_buffer", S::Block),
    ("wait_on_buffer", S::Block),
    ("submit_bio_wait", S::Block),
    ("blk_*", S::Block),
    ("__blk_*", S::Block),
    ("bio_wait*", S::Block),
    ("blkdev_*", S::Block),
    ("iomap_dio_rw", S::Block),
    ("__iomap_dio_rw", S::Block),
    ("do_blockdev_direct_IO", S::Block),
    ("__blockdev_direct_IO", S::Block),
    ("wbt_wait", S::Block),
    ("rq_qos_wait", S::Block),
    ("read_events", S::Block),
    ("hrtimer_nanosleep", S::Timer),
    ("do_nanosleep", S::Timer),
    ("common_nsleep*", S::Timer),
    ("do_wait", S::Child),
    ("kernel_wait4", S::Child),
    ("kernel_waitid*", S::Child),
    ("wait_for_vfork_done", S::Vfork),
    ("inet_csk_accept", S::Accept),
    ("inet_csk_wait_for_connect", S::Accept),
    ("unix_accept", S::Accept),
    ("inet_accept", S::Accept),
    ("do_accept", S::Accept),
    ("sk_wait_data", S::SocketRead),
    ("tcp_recvmsg*", S::SocketRead),
    ("unix_stream_data_wait", S::SocketRead),
    ("unix_stream_read_generic", S::SocketRead),
    ("__skb_wait_for_more_packets", S::SocketRead),
    ("__skb_recv_datagram", S::SocketRead),
    ("skb_recv_datagram", S::SocketRead),
    ("vsock_connectible_*", S::SocketRead),
    ("inet_wait_for_connect", S::SocketRead),
    ("__inet_stream_connect", S::SocketRead),
    ("sk_stream_wait_memory", S::SocketWrite),
    ("sock_alloc_send_pskb", S::SocketWrite),
    ("unix_wait_for_peer", S::SocketWrite),
    ("pipe_read", S::Pipe),
    ("anon_pipe_read", S::Pipe),
    ("fifo_pipe_read", S::Pipe),
    ("pipe_write", S::Pipe),
    ("anon_pipe_write", S::Pipe),
    ("fifo_pipe_write", S::Pipe),
    ("pipe_wait*", S::Pipe),
    ("wait_for_partner", S::Pipe),
    ("eventfd_read", S::Pipe),
    ("ep_poll", S::Poll),
    ("do_epoll_wait", S::Poll),
    ("do_sys_poll", S::Poll),
    ("do_poll*", S::Poll),
    ("do_select", S::Poll),
    ("core_sys_select", S::Poll),
    ("poll_schedule_timeout*", S::Poll),
    ("futex_wait*", S::Futex),
    ("__futex_wait", S::Futex),
    ("futex_lock_pi*", S::Futex),
    ("do_futex", S::Futex),
    ("do_msgrcv", S::SysvIpc),
    ("do_semtimedop", S::SysvIpc),
    ("__do_semtimedop", S::SysvIpc),
    ("wq_sleep", S::SysvIpc),
    ("io_cqring_wait*", S::IoUring),
    ("io_wq_worker", S::IoUring),
    ("n_tty_read", S::Terminal),
    ("tty_read", S::Terminal),
];

/// What an interrupt that ended a wait was about, from the waker's stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Interrupt {
    Block,
    Network,
    Nvidia,
    Timer,
}

const INTERRUPTS: &[(&str, Interrupt)] = &[
    ("bio_endio", Interrupt::Block),
    ("blk_mq_complete*", Interrupt::Block),
    ("blk_complete_reqs", Interrupt::Block),
    ("blk_done_softirq", Interrupt::Block),
    ("blk_update_request", Interrupt::Block),
    ("blk_mq_end_request*", Interrupt::Block),
    ("virtblk_done", Interrupt::Block),
    ("nvme_irq", Interrupt::Block),
    ("nvme_pci_complete_rq", Interrupt::Block),
    ("scsi_*", Interrupt::Block),
    ("ata_*", Interrupt::Block),
    ("end_page_read*", Interrupt::Block),
    ("folio_end_read", Interrupt::Block),
    ("mpage_end_io", Interrupt::Block),
    ("mpage_read_end_io", Interrupt::Block),
    ("iomap_dio_bio_end_io", Interrupt::Block),
    ("net_rx_action", Interrupt::Network),
    ("napi_*", Interrupt::Network),
    ("__napi_poll", Interrupt::Network),
    ("tcp_v4_rcv", Interrupt::Network),
    ("tcp_v6_rcv", Interrupt::Network),
    ("udp_queue_rcv*", Interrupt::Network),
    ("sock_def_readable", Interrupt::Network),
    ("nv_*", Interrupt::Nvidia),
    ("nvidia_isr*", Interrupt::Nvidia),
    ("rm_isr*", Interrupt::Nvidia),
    ("nvidia_*", Interrupt::Nvidia),
    ("hrtimer_wakeup", Interrupt::Timer),
    ("process_timeout", Interrupt::Timer),
    ("run_timer_*", Interrupt::Timer),
    ("hrtimer_*", Interrupt::Timer),
    ("__hrtimer_*", Interrupt::Timer),
    ("timerfd_*", Interrupt::Timer),
    ("it_real_fn", Interrupt::Timer),
];

/// The class of the stack a thread slept in, `None` where no row matches.
pub(crate) fn sleep(frames: &[NamedFrame]) -> Option<Sleep> {
    best(SLEEPS, frames)
}

/// What the interrupt was about, from the stack of the thread it came over.
pub(crate) fn interrupt(frames: &[NamedFrame]) -> Option<Interrupt> {
    best(INTERRUPTS, frames)
}

/// Whether the stack lies inside a page fault.
pub(crate) fn in_fault(frames: &[NamedFrame]) -> bool {
    frames.iter().any(|f| {
        matches!(
            bare(&f.name),
            "handle_mm_fault"
                | "__handle_mm_fault"
                | "filemap_fault"
                | "do_user_addr_fault"
                | "exc_page_fault"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::kernel_names::frames;
    use super::*;

    #[test]
    fn the_same_wait_under_old_and_new_names() {
        let new =
            frames(&["schedule", "io_schedule", "folio_wait_bit_common", "filemap_get_pages", "vfs_read"]);
        let old =
            frames(&["schedule", "io_schedule", "wait_on_page_bit_common", "generic_file_buffered_read"]);
        assert_eq!(sleep(&new), Some(Sleep::Block));
        assert_eq!(sleep(&old), Some(Sleep::Block));
        assert!(!in_fault(&new));
    }

    #[test]
    fn the_more_specific_account_wins() {
        let reclaim = frames(&["io_schedule", "shrink_folio_list", "try_to_free_pages", "filemap_read"]);
        assert_eq!(sleep(&reclaim), Some(Sleep::Reclaim));
        let fuse = frames(&["schedule", "request_wait_answer", "fuse_readpages_end", "filemap_read"]);
        assert_eq!(sleep(&fuse), Some(Sleep::Fuse));
        let journal = frames(&["io_schedule", "folio_wait_bit", "jbd2_log_wait_commit", "ext4_sync_file"]);
        assert_eq!(sleep(&journal), Some(Sleep::Write));
    }

    #[test]
    fn compiler_suffixes_are_ignored() {
        assert_eq!(
            sleep(&frames(&["__mutex_lock.constprop.0", "ext4_file_write_iter"])),
            Some(Sleep::KernelLock)
        );
        assert_eq!(sleep(&frames(&["do_poll.constprop.0"])), Some(Sleep::Poll));
    }

    #[test]
    fn every_class_has_a_row_and_no_row_is_hidden() {
        for &(pattern, class) in SLEEPS {
            let name = pattern.replace('*', "x");
            assert_eq!(sleep(&frames(&[&name])), Some(class), "{pattern}");
        }
        for &(pattern, class) in INTERRUPTS {
            assert_eq!(interrupt(&frames(&[&pattern.replace('*', "x")])), Some(class), "{pattern}");
        }
    }

    #[test]
    fn nothing_known_is_none() {
        assert_eq!(sleep(&frames(&["schedule", "x64_sys_call"])), None);
        assert_eq!(sleep(&[]), None);
        assert_eq!(interrupt(&frames(&["asm_common_interrupt"])), None);
    }
}
