//! Names of the NVIDIA driver's commands, by number.
//!
//! The numbers are those of NVIDIA's open kernel modules, release 595.45 (`nv_escape.h`, `nv-ioctl-numbers.h`,
//! `uvm_ioctl.h`, `ctrl/ctrl*.h`). A command of the driver holds the size of its structure, which differs between
//! releases, so it is told by its number alone; the memory manager's commands are bare numbers.

use crate::trace::NvidiaIoctl;

/// The driver's own major.
const MAJOR: u32 = 195;
/// `_IOC_TYPE` of its commands.
const TYPE: u32 = 0x46;

const RM_CONTROL: u32 = 0x2a;

/// `_IOC_NR` of the driver's commands.
const DRIVER: &[(u32, &str)] = &[
    (0x27, "RM_ALLOC_MEMORY"),
    (0x28, "RM_ALLOC_OBJECT"),
    (0x29, "RM_FREE"),
    (RM_CONTROL, "RM_CONTROL"),
    (0x2b, "RM_ALLOC"),
    (0x34, "RM_DUP_OBJECT"),
    (0x35, "RM_SHARE"),
    (0x41, "RM_IDLE_CHANNELS"),
    (0x4a, "RM_VID_HEAP_CONTROL"),
    (0x4d, "RM_ACCESS_REGISTRY"),
    (0x4e, "RM_MAP_MEMORY"),
    (0x4f, "RM_UNMAP_MEMORY"),
    (0x52, "RM_GET_EVENT_DATA"),
    (0x54, "RM_ALLOC_CONTEXT_DMA2"),
    (0x57, "RM_MAP_MEMORY_DMA"),
    (0x58, "RM_UNMAP_MEMORY_DMA"),
    (0x59, "RM_BIND_CONTEXT_DMA"),
    (0x5c, "RM_EXPORT_OBJECT_TO_FD"),
    (0x5d, "RM_IMPORT_OBJECT_FROM_FD"),
    (0x5e, "RM_UPDATE_DEVICE_MAPPING_INFO"),
    (0x5f, "RM_LOCKLESS_DIAGNOSTIC"),
    (0xc8, "CARD_INFO"),
    (0xc9, "REGISTER_FD"),
    (0xce, "ALLOC_OS_EVENT"),
    (0xcf, "FREE_OS_EVENT"),
    (0xd1, "STATUS_CODE"),
    (0xd2, "CHECK_VERSION_STR"),
    (0xd3, "IOCTL_XFER_CMD"),
    (0xd4, "ATTACH_GPUS_TO_FD"),
    (0xd5, "QUERY_DEVICE_INTR"),
    (0xd6, "SYS_PARAMS"),
    (0xd7, "NUMA_INFO"),
    (0xd8, "SET_NUMA_STATUS"),
    (0xd9, "EXPORT_TO_DMABUF_FD"),
    (0xda, "WAIT_OPEN_COMPLETE"),
];

/// Inner commands of `RM_CONTROL` worth a name, of some 2,400.
const CONTROL: &[(u32, &str)] = &[
    (0x0000_0101, "SYSTEM_GET_BUILD_VERSION"),
    (0x0000_013e, "SYSTEM_GET_BUILD_VERSION_V2"),
    (0x0000_0201, "GPU_GET_ATTACHED_IDS"),
    (0x0000_0205, "GPU_GET_ID_INFO_V2"),
    (0x0000_0215, "GPU_ATTACH_IDS"),
    (0x0000_0501, "EVENT_SET_NOTIFICATION"),
    (0x0000_0d01, "CLIENT_GET_ADDR_SPACE_TYPE"),
    (0x0080_1104, "GR_GET_INFO"),
    (0x0080_1110, "GR_GET_INFO_V2"),
    (0x2080_0102, "GPU_GET_INFO_V2"),
    (0x2080_012b, "GPU_PROMOTE_CTX"),
    (0x2080_012c, "GPU_EVICT_CTX"),
    (0x2080_012d, "GPU_INITIALIZE_CTX"),
    (0x2080_018d, "GPU_GET_PIDS"),
    (0x2080_0301, "EVENT_SET_NOTIFICATION"),
    (0x2080_0403, "TIMER_GET_TIME"),
    (0x2080_0406, "TIMER_GET_GPU_CPU_TIME_CORRELATION_INFO"),
    (0x2080_110b, "FIFO_DISABLE_CHANNELS"),
    (0x2080_1201, "GR_GET_INFO"),
    (0x2080_1228, "GR_GET_INFO_V2"),
    (0x2080_1303, "FB_GET_INFO_V2"),
    (0x2080_1702, "MC_SERVICE_INTERRUPTS"),
    (0x2080_200a, "PERF_BOOST"),
    (0x2080_2096, "PERF_GET_GPUMON_PERFMON_UTIL_SAMPLES_V2"),
    (0x2080_2205, "RC_GET_ERROR_COUNT"),
    (0x2080_2206, "RC_GET_ERROR"),
    (0x2080_2213, "RC_GET_ERROR_V2"),
    (0x2080_3002, "NVLINK_GET_NVLINK_STATUS"),
    (0x906f_0102, "RESET_CHANNEL"),
    (0xa06c_0101, "GPFIFO_SCHEDULE"),
    (0xa06c_0102, "BIND"),
    (0xa06c_0103, "SET_TIMESLICE"),
    (0xa06c_0105, "PREEMPT"),
    (0xa06f_0103, "GPFIFO_SCHEDULE"),
    (0xa06f_0104, "BIND"),
    (0xb0cc_0101, "RESERVE_HWPM"),
    (0xb0cc_0105, "ALLOC_PMA_STREAM"),
    (0xb0cc_0107, "BIND_PM_RESOURCES"),
    (0xc36f_0108, "GPFIFO_GET_WORK_SUBMIT_TOKEN"),
];

/// The memory manager's commands.
const UVM: &[(u32, &str)] = &[
    (23, "UVM_CREATE_RANGE_GROUP"),
    (24, "UVM_DESTROY_RANGE_GROUP"),
    (25, "UVM_REGISTER_GPU_VASPACE"),
    (26, "UVM_UNREGISTER_GPU_VASPACE"),
    (27, "UVM_REGISTER_CHANNEL"),
    (28, "UVM_UNREGISTER_CHANNEL"),
    (29, "UVM_ENABLE_PEER_ACCESS"),
    (30, "UVM_DISABLE_PEER_ACCESS"),
    (31, "UVM_SET_RANGE_GROUP"),
    (33, "UVM_MAP_EXTERNAL_ALLOCATION"),
    (34, "UVM_FREE"),
    (37, "UVM_REGISTER_GPU"),
    (38, "UVM_UNREGISTER_GPU"),
    (39, "UVM_PAGEABLE_MEM_ACCESS"),
    (42, "UVM_SET_PREFERRED_LOCATION"),
    (43, "UVM_UNSET_PREFERRED_LOCATION"),
    (44, "UVM_ENABLE_READ_DUPLICATION"),
    (45, "UVM_DISABLE_READ_DUPLICATION"),
    (46, "UVM_SET_ACCESSED_BY"),
    (47, "UVM_UNSET_ACCESSED_BY"),
    (51, "UVM_MIGRATE"),
    (53, "UVM_MIGRATE_RANGE_GROUP"),
    (65, "UVM_MAP_DYNAMIC_PARALLELISM_REGION"),
    (66, "UVM_UNMAP_EXTERNAL"),
    (68, "UVM_ALLOC_SEMAPHORE_POOL"),
    (69, "UVM_CLEAN_UP_ZOMBIE_RESOURCES"),
    (70, "UVM_PAGEABLE_MEM_ACCESS_ON_GPU"),
    (71, "UVM_POPULATE_PAGEABLE"),
    (72, "UVM_VALIDATE_VA_RANGE"),
    (73, "UVM_CREATE_EXTERNAL_RANGE"),
    (74, "UVM_MAP_EXTERNAL_SPARSE"),
    (75, "UVM_MM_INITIALIZE"),
    (78, "UVM_ALLOC_DEVICE_P2P"),
    (79, "UVM_CLEAR_ALL_ACCESS_COUNTERS"),
    (80, "UVM_DISCARD"),
    (0x3000_0001, "UVM_INITIALIZE"),
    (0x3000_0002, "UVM_DEINITIALIZE"),
];

/// Numbers of the memory manager's profiling interface.
fn is_tools(command: u32) -> bool {
    matches!(command, 56..=64 | 67 | 76 | 77)
}

/// A command in words: `RM_CONTROL FB_GET_INFO_V2`, `UVM_MIGRATE`; a number where there is no name, of a control
/// call as `class:command`. `major` is the node's, where it is known.
pub(crate) fn command(major: Option<u32>, ioctl: NvidiaIoctl) -> String {
    let command = ioctl.command;
    // The driver's have both directions set, the memory manager's none.
    let typed = command >> 30 == 3 && (command >> 8) & 0xff == TYPE;
    if !typed {
        return match find(UVM, command).filter(|_| major != Some(MAJOR)) {
            Some(name) => name.to_owned(),
            None if major != Some(MAJOR) && is_tools(command) => "UVM_TOOLS".to_owned(),
            None => format!("command {command:#x}"),
        };
    }
    let nr = command & 0xff;
    let name = find(DRIVER, nr).map_or_else(|| format!("command {nr:#x}"), str::to_owned);
    match ioctl.inner {
        Some(inner) if nr == RM_CONTROL => match find(CONTROL, inner) {
            Some(control) => format!("{name} {control}"),
            None => format!("{name} {:04x}:{:04x}", inner >> 16, inner & 0xffff),
        },
        _ => name,
    }
}

fn find(table: &[(u32, &'static str)], number: u32) -> Option<&'static str> {
    table.iter().find(|row| row.0 == number).map(|row| row.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(major: Option<u32>, number: u32, inner: Option<u32>) -> String {
        command(major, NvidiaIoctl { command: number, inner })
    }

    #[test]
    fn the_driver_is_told_by_number_whatever_the_structures_size() {
        assert_eq!(name(Some(195), 0xc020_462a, None), "RM_CONTROL");
        assert_eq!(name(None, 0xc020_462b, None), "RM_ALLOC");
        assert_eq!(name(None, 0xc030_462b, Some(7)), "RM_ALLOC", "only control calls have an inner command");
        assert_eq!(name(None, 0xc010_4699, None), "command 0x99");
        assert_eq!(name(Some(195), 0xc010_6d00, None), "command 0xc0106d00", "mode setting's own");
        assert_eq!(name(Some(195), 34, None), "command 0x22", "no command of the memory manager");
    }

    #[test]
    fn control_calls_say_what_they_ask_for() {
        assert_eq!(name(None, 0xc020_462a, Some(0x2080_1303)), "RM_CONTROL FB_GET_INFO_V2");
        assert_eq!(name(None, 0xc020_462a, Some(0x2080_1234)), "RM_CONTROL 2080:1234");
        assert_eq!(name(None, 0xc020_462a, Some(0x0101)), "RM_CONTROL SYSTEM_GET_BUILD_VERSION");
    }

    #[test]
    fn the_memory_managers_are_bare_numbers() {
        assert_eq!(name(Some(511), 51, None), "UVM_MIGRATE");
        assert_eq!(name(None, 0x3000_0001, None), "UVM_INITIALIZE");
        assert_eq!(name(Some(511), 57, None), "UVM_TOOLS");
        assert_eq!(name(Some(511), 999, None), "command 0x3e7");
    }

    #[test]
    fn no_number_twice() {
        for table in [DRIVER, CONTROL, UVM] {
            assert!(table.windows(2).all(|w| w[0].0 < w[1].0), "numbers rise");
        }
    }
}
