"""Control groups for a case's processes: slow disks, quotas, memory limits. Version 1 or 2, whichever has it."""

import atexit
import os
import time

PREFIX = "whyidle-case-"

# What is limited: the version 1 controller and its files, the version 2 controller and its file.
READ_BPS, READ_IOPS, WRITE_BPS = "read_bps", "read_iops", "write_bps"
V1_DISK = {
    READ_BPS: "blkio.throttle.read_bps_device",
    READ_IOPS: "blkio.throttle.read_iops_device",
    WRITE_BPS: "blkio.throttle.write_bps_device",
}
V2_DISK = {READ_BPS: "rbps", READ_IOPS: "riops", WRITE_BPS: "wbps"}


class Group:
    """Gone when the process that made it ends in order; those of killed jobs go when the next is made."""

    def __init__(self, controller, name=""):
        """`controller`: `blkio`, `cpu` or `memory`, as version 1 calls them."""
        _sweep()
        mounted = _mount("cgroup", controller)
        self.old = mounted is not None
        parent = mounted or _mount("cgroup2", None)
        if parent is None:
            raise RuntimeError(f"no control groups for {controller} are mounted")
        if not self.old:
            _write(os.path.join(parent, "cgroup.subtree_control"), f"+{'io' if controller == 'blkio' else controller}")
        self.owner = os.getpid()
        self.parent = parent
        self.path = os.path.join(parent, f"{PREFIX}{self.owner}-{controller}{name}")
        os.mkdir(self.path)
        atexit.register(self.remove)

    def disk(self, folder, **limits):
        """At most so many bytes or requests a second from the disk below a folder; 0: as many as it can."""
        device = disk_of(folder)
        for what, limit in limits.items():
            if self.old:
                self._set(V1_DISK[what], f"{device} {limit}")
            else:
                self._set("io.max", f"{device} {V2_DISK[what]}={limit or 'max'}")

    def quota(self, quota_us, period_us=100_000):
        if self.old:
            self._set("cpu.cfs_period_us", period_us)
            self._set("cpu.cfs_quota_us", quota_us)
        else:
            self._set("cpu.max", f"{quota_us} {period_us}")

    def memory(self, limit):
        self._set("memory.limit_in_bytes" if self.old else "memory.max", limit)

    def join(self, pid=0):
        """Has a process be a member, 0: the calling one; its children are born into the group."""
        self._set("cgroup.procs", pid)

    def leave(self, pid=0):
        _write(os.path.join(self.parent, "cgroup.procs"), pid)

    def remove(self):
        if os.getpid() == self.owner:
            _remove(self.path)

    def _set(self, file, value):
        _write(os.path.join(self.path, file), value)


def disk_of(folder):
    """`MAJOR:MINOR` of the whole disk below a folder: a partition cannot be limited."""
    number = os.stat(folder).st_dev
    sysfs = f"/sys/dev/block/{os.major(number)}:{os.minor(number)}"
    if not os.path.exists(sysfs):
        raise RuntimeError(f"{folder} lies on no single disk")
    if os.path.exists(os.path.join(sysfs, "partition")):
        sysfs = os.path.dirname(os.path.realpath(sysfs))
    with open(os.path.join(sysfs, "dev"), encoding="utf-8") as file:
        return file.read().strip()


def _mount(kind, option):
    with open("/proc/self/mounts", encoding="utf-8") as mounts:
        for line in mounts:
            _, place, its_kind, options = line.split(" ")[:4]
            if its_kind == kind and (option is None or option in options.split(",")):
                return place
    return None


def _write(path, value):
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"{value}\n")


def _remove(path):
    """Members that are just exiting hold it for a moment."""
    begun = time.monotonic()
    while os.path.exists(path):
        with open(os.path.join(path, "cgroup.procs"), encoding="utf-8") as members:
            for pid in members.read().split():
                try:
                    _write(os.path.join(os.path.dirname(path), "cgroup.procs"), pid)
                except OSError:
                    pass
        try:
            os.rmdir(path)
        except OSError:
            if time.monotonic() - begun > 5:
                raise
            time.sleep(0.05)


def _sweep():
    """Removes the groups of jobs that were killed."""
    for parent in {_mount("cgroup", controller) for controller in ("blkio", "cpu", "memory")} | {_mount("cgroup2", None)}:
        for name in os.listdir(parent) if parent else ():
            if name.startswith(PREFIX) and not os.path.exists(f"/proc/{name[len(PREFIX):].split('-')[0]}"):
                _remove(os.path.join(parent, name))
