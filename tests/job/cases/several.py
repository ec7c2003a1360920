"""Two ranks, two faults."""

import multiprocessing
import os
import time
import zlib

from group import Group
from processes import dies_with_parent, name_thread
from training import Trainer, drop, files, read, warm

MIB = 1 << 20


def slow_files(run, read_bps):
    """Files of 1 MB, from memory or, in a group that is not joined yet, from a slow disk."""
    paths = files(os.path.join(run.data, "images"), 32, MIB, run.seed)
    warm(paths)
    group = Group("blkio")
    group.disk(run.data, read_bps=read_bps)
    if run.fault:
        drop(paths)
    return paths, group


def decode(data, seconds):
    begun = time.thread_time()
    while time.thread_time() - begun < seconds:
        zlib.compress(data[: 1 << 16], 1)


def slow_rank(run):
    """Two ranks that wait for each other before every step; the fault: one of them reads from a slow disk."""
    paths, group = slow_files(run, 12 * MIB)
    ours, theirs = multiprocessing.Pipe()

    def other():
        name_thread("rank-1")
        dies_with_parent()
        if run.fault:
            group.join()
        trainer = Trainer(run.open(1), 50)
        number = 0
        while True:
            theirs.recv()
            read(paths[number % len(paths)], run.fault)
            number += 1
            theirs.send(number)
            trainer.step()

    rank = multiprocessing.get_context("fork").Process(target=other, daemon=True)
    rank.start()
    name_thread("rank-0")
    trainer = Trainer(run.open(0), 50)

    def step():
        ours.send(0)
        ours.recv()
        trainer.step()

    run.loop(step)


def two_faults(run):
    """The training thread reads for 60 ms and decodes for 40 of every 100 it needs for a batch."""
    paths, group = slow_files(run, 6 * MIB)
    if run.fault:
        group.join()
    trainer = Trainer(run.open(), 50)
    number = 0

    def step():
        nonlocal number
        number += 1
        begun = time.monotonic()
        data = read(paths[number % len(paths)], run.fault)
        took = time.monotonic() - begun
        if run.fault:
            decode(data, took * 2 / 3)
        trainer.step()

    run.loop(step)


def moving_fault(run):
    """Reads slowly in the first half, decodes slowly in the second."""
    paths, group = slow_files(run, 12 * MIB)
    if run.fault:
        group.join()
    trainer = Trainer(run.open(), 50)
    number = 0
    turned = False

    def step():
        nonlocal number, turned
        number += 1
        late = run.counted >= 0.5
        if late and not turned:
            turned = True
            warm(paths)
            run.tell(turn_ns=time.monotonic_ns())
        data = read(paths[number % len(paths)], run.fault and not late)
        if run.fault and late:
            decode(data, 0.08)
        trainer.step()

    run.loop(step)


CASES = {"slow-rank": slow_rank, "two-faults": two_faults, "moving-fault": moving_fault}
