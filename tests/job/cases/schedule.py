"""Waiting for a processor."""

import ctypes
import hashlib
import os
import subprocess
import time

from group import Group
from pool import Pool
from processes import name_thread, outside
from training import Trainer, files, read, warm

BLOCK = bytes(1 << 16)


def busy(seconds):
    """So much time on a processor, outside the interpreter's lock."""
    begun = time.thread_time()
    while time.thread_time() - begun < seconds:
        hashlib.sha256(BLOCK).digest()


def neighbour():
    name_thread("neighbour")
    busy(3600)


def contention(run):
    """A worker prepares for 50 ms a batch; the fault: three processes of somebody else's want the same two
    processors."""
    if run.fault:
        for _ in range(3 * max(1, (os.cpu_count() or 2) // 2)):
            outside(neighbour)
    pool = Pool(lambda number: busy(0.05), workers=1)
    trainer = Trainer(run.open(), 70)
    run.train(trainer, pool.next)


def team_library(folder):
    """The C compiler's OpenMP: threads that spin at a barrier until the last of them has come."""
    source = os.path.join(os.path.dirname(__file__), "..", "..", "programs", "team.c")
    library = os.path.join(folder, "team.so")
    subprocess.run(["cc", "-O2", "-fopenmp", "-shared", "-fPIC", source, "-o", library], check=True)
    return library


def quota(run):
    """A worker that shares its work out over as many threads as it sees processors, which spin at a barrier 300 times a
    batch; the fault: the job may use a quarter of one processor."""
    library = team_library(run.data)
    if run.fault:
        group = Group("cpu")
        group.quota(25_000)
        group.join()
    pool = Pool(lambda number: ctypes.CDLL(library).team(os.cpu_count(), 300, 120_000), workers=1)
    trainer = Trainer(run.open(), 80)
    run.train(trainer, pool.next)


def one_core_affinity(run):
    """Four workers that read a file that is in memory and need 130 ms for each batch; the fault: all inherit a mask of
    one processor."""
    paths = files(os.path.join(run.data, "samples"), 32, 1 << 20, run.seed)
    warm(paths)

    def make(number):
        read(paths[number % len(paths)], cold=False)
        busy(0.13)

    begin = (lambda index: os.sched_setaffinity(0, {0})) if run.fault else None
    pool = Pool(make, workers=4, depth=2, begin=begin)
    trainer = Trainer(run.open(), 95)
    run.train(trainer, pool.next)


def oversubscribed(run):
    """Two workers that share their work out over a team of threads, 1,000 times a batch; the fault: each team is eight
    wide, and spins while it waits, where the host has room for one thread of each."""
    library = team_library(run.data)

    def make(number):
        ctypes.CDLL(library).team(8 if run.fault else 1, 1000, 100_000)

    pool = Pool(make)
    trainer = Trainer(run.open(), 60)
    run.train(trainer, pool.next)


CASES = {
    "contention": contention,
    "quota": quota,
    "one-core-affinity": one_core_affinity,
    "oversubscribed": oversubscribed,
}
