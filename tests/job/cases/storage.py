"""Reading and writing files on a disk."""

import mmap
import os
import random
import time
import zlib

from group import Group
from pool import Pool
from training import Trainer, drop, files, read, warm

MIB = 1 << 20


def slow_read(run):
    """Two workers that read a file a batch; the fault: from a disk of 4 MB/s instead of from memory."""
    paths = files(os.path.join(run.data, "images"), 64, MIB, run.seed)
    warm(paths)
    if run.fault:
        group = Group("blkio")
        group.disk(run.data, read_bps=4 * MIB)
        group.join()
        drop(paths)
    pool = Pool(lambda number: read(paths[number % len(paths)], run.fault))
    trainer = Trainer(run.open(), 100)
    run.train(trainer, pool.next)


def cold_read(run):
    """Two workers that read 192 MB for each batch; the fault: nothing of it is in memory."""
    paths = files(os.path.join(run.data, "shards"), 6, 192 * MIB, run.seed)
    warm(paths)

    def make(number):
        buffer = bytearray(MIB)
        with open(paths[number % len(paths)], "rb", buffering=0) as file:
            if run.fault:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            while file.readinto(buffer):
                pass

    pool = Pool(make)
    trainer = Trainer(run.open(), 50)
    run.train(trainer, pool.next)


def small_random_reads(run):
    """Two workers that read 40 records of 4 KiB at random places for each batch; the fault: from a disk that takes
    200 requests a second."""
    path = files(run.data, 1, 256 * MIB, run.seed)[0]
    warm([path])
    if run.fault:
        group = Group("blkio")
        group.disk(run.data, read_iops=200)
        group.join()
        drop([path])

    def make(number):
        source = random.Random(run.seed * 1_000_000 + number)
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        for _ in range(40):
            os.pread(fd, 4096, source.randrange(256 * MIB // 4096) * 4096)
        if run.fault:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)

    pool = Pool(make)
    trainer = Trainer(run.open(), 100)
    run.train(trainer, pool.next)


def mapped(run, advice, touch, **limit):
    """The training thread touches a mapping for each step; the fault: none of it is in memory, on a limited disk."""
    path = files(run.data, 1, 64 * MIB, run.seed)[0]
    warm([path])
    if run.fault:
        group = Group("blkio")
        group.disk(run.data, **limit)
        group.join()
        drop([path])
    trainer = Trainer(run.open(), 50)
    fd = os.open(path, os.O_RDONLY)
    number = 0

    def step():
        nonlocal number
        if run.fault:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        with mmap.mmap(fd, 64 * MIB, prot=mmap.PROT_READ) as mapping:
            mapping.madvise(advice)
            first = number * 8 % 64 * MIB
            touch(mapping, first)
        number += 1
        trainer.step()

    run.loop(step)


def pages(count):
    return lambda mapping, first: [mapping[first + i * 4096] for i in range(count)]


def mmap_weights(run):
    """Without read-ahead each page is a request of its own, and the disk takes 2,500 a second: 10 MB/s, where reading in
    one go, in large requests, is some 40 times as fast."""
    mapped(run, mmap.MADV_RANDOM, pages(512), read_iops=2500)


def mmap_sequential(run):
    """With read-ahead: eight pages of ten come before they are asked for."""
    mapped(run, mmap.MADV_SEQUENTIAL, pages(1024), read_bps=16 * MIB)


def metadata(run):
    """A worker looks at 40 files in folders of their own for each batch; the fault: nothing of the folders is in
    memory, and the disk takes 300 requests a second."""
    folders = []
    for i in range(2000):
        folder = os.path.join(run.data, f"{i % 40:02}", f"{i:04}")
        folders.append(folder)
        if not os.path.exists(folder):
            os.makedirs(folder)
            with open(os.path.join(folder, "label.txt"), "w", encoding="utf-8") as file:
                file.write(str(i))
    os.sync()
    if run.fault:
        group = Group("blkio")
        group.disk(run.data, read_iops=300)
        group.join()

    def make(number):
        if run.fault:
            with open("/proc/sys/vm/drop_caches", "w", encoding="utf-8") as file:
                # Dentries and inodes, and the blocks they are read from.
                file.write("3")
        for i in range(number * 40, (number + 1) * 40):
            os.stat(os.path.join(folders[i % len(folders)], "label.txt"))

    pool = Pool(make, workers=1)
    trainer = Trainer(run.open(), 100)
    run.train(trainer, pool.next)


def checkpoint(run):
    """The training thread writes a checkpoint of 2 MB and an fsync every second step; the fault: to a disk of
    8 MB/s, without: to memory."""
    folder = run.data if run.fault else "/dev/shm"
    if run.fault:
        group = Group("blkio")
        group.disk(run.data, write_bps=8 * MIB)
        group.join()
    path = os.path.join(folder, f"checkpoint-{os.getpid()}.pt")
    weights = random.Random(run.seed).randbytes(2 * MIB)
    trainer = Trainer(run.open(), 50)
    number = 0

    def step():
        nonlocal number
        trainer.step()
        number += 1
        if number % 2 == 0:
            with open(path, "wb") as file:
                file.write(weights)
                file.flush()
                os.fsync(file.fileno())

    try:
        run.loop(step)
    finally:
        os.unlink(path)


def log_flood(run):
    """The training thread logs 32 MB a step; the fault: to a disk, past what may be dirty, instead of to memory."""
    names = ("dirty_bytes", "dirty_background_bytes", "dirty_ratio", "dirty_background_ratio")
    before = {name: sysctl(name) for name in names}
    path = os.path.join(run.data if run.fault else "/dev/shm", f"log-{os.getpid()}.txt")
    lines = b"loss 0.1234 " * (MIB // 12)
    trainer = Trainer(run.open(), 50)
    written = 0
    try:
        if run.fault:
            sysctl("dirty_bytes", 8 * MIB)
            sysctl("dirty_background_bytes", 4 * MIB)
        with open(path, "wb", buffering=0) as log:

            def step():
                nonlocal written
                trainer.step()
                for _ in range(32 if run.fault else 1):
                    log.write(lines)
                    written += 1
                if written >= 256:
                    log.seek(0)
                    written = 0

            run.loop(step)
    finally:
        # Bytes and ratio are two forms of one limit: what is set to something takes the other away.
        for name, value in before.items():
            if value:
                sysctl(name, value)
        os.unlink(path)


def sysctl(name, value=None):
    path = f"/proc/sys/vm/{name}"
    if value is not None:
        with open(path, "w", encoding="utf-8") as file:
            file.write(str(value))
    with open(path, encoding="utf-8") as file:
        return int(file.read())


def hidden_read(run):
    """Four prefetching workers: a read and then a decode of 150 ms; the fault: the read takes 300 ms instead of 5."""
    paths = files(os.path.join(run.data, "samples"), 32, MIB, run.seed)
    warm(paths)
    groups = []
    if run.fault:
        # One each: what is slow is the single read, however many there are.
        groups = [Group("blkio", f"-{i}") for i in range(4)]
        for group in groups:
            group.disk(run.data, read_bps=MIB * 10 // 3)
        drop(paths)

    def begin(index):
        if groups:
            groups[index].join()

    def make(number):
        data = read(paths[number % len(paths)], run.fault)
        begun = time.thread_time()
        while time.thread_time() - begun < 0.15:
            zlib.decompress(zlib.compress(data[: 1 << 16], 1))

    pool = Pool(make, workers=4, depth=2, begin=begin)
    trainer = Trainer(run.open(), 90)
    run.train(trainer, pool.next)


CASES = {
    "slow-read": slow_read,
    "cold-read": cold_read,
    "small-random-reads": small_random_reads,
    "mmap-weights": mmap_weights,
    "mmap-sequential": mmap_sequential,
    "metadata": metadata,
    "checkpoint": checkpoint,
    "log-flood": log_flood,
    "hidden-read": hidden_read,
}
