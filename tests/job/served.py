"""A file system that a process of nobody's serves, each request after a delay: what a remote one looks like."""

import contextlib
import errno
import os
import subprocess
import time

import fusepy as fuse
from processes import name_thread, outside


class Passing(fuse.Operations):
    """Hands a folder on, read only; leaves nothing of it in memory where `cold`."""

    def __init__(self, folder, delay, cold):
        self.folder, self.delay, self.cold = folder, delay, cold

    def __call__(self, operation, path, *arguments):
        if self.delay and operation in ("getattr", "open", "read", "readdir", "opendir"):
            time.sleep(self.delay)
        return super().__call__(operation, self.folder + path if path else path, *arguments)

    def getattr(self, path, fh=None):
        try:
            status = os.lstat(path)
        except FileNotFoundError:
            raise fuse.FuseOSError(errno.ENOENT) from None
        names = ("st_mode", "st_nlink", "st_uid", "st_gid", "st_size", "st_atime", "st_mtime", "st_ctime")
        return {name: getattr(status, name) for name in names}

    def readdir(self, path, fh):
        return [".", "..", *os.listdir(path)]

    def open(self, path, flags):
        return os.open(path, os.O_RDONLY)

    def read(self, path, size, offset, fh):
        return os.pread(fh, size, offset)

    def release(self, path, fh):
        if self.cold:
            os.posix_fadvise(fh, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fh)
        return 0


@contextlib.contextmanager
def mounted(folder, at, delay=0, group=None):
    """`at` shows `folder` until the end of the block. A daemon in a group reads everything from the disk."""
    subprocess.run(["umount", "-l", at], stderr=subprocess.DEVNULL, check=False)
    os.makedirs(at, exist_ok=True)
    outside(_serve, folder, at, delay, group)
    begun = time.monotonic()
    while not os.path.ismount(at):
        if time.monotonic() - begun > 10:
            raise RuntimeError(f"{at} was not mounted")
        time.sleep(0.02)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", at], check=False)


def _serve(folder, at, delay, group):
    name_thread("served")
    if group:
        group.join()
    # No caching, so that every request is asked for.
    fuse.FUSE(Passing(folder, delay, group is not None), at, foreground=True, nothreads=True, ro=True, attr_timeout=0, entry_timeout=0,
              direct_io=True)
