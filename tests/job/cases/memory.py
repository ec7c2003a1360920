"""Memory that is not there yet, not there any more, or too little."""

import mmap
import os

from group import Group
from pool import Pool
from training import Trainer

MIB = 1 << 20


def private(size):
    """Memory of small pages that is the process's own."""
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    return memory


def first_touch(run):
    """The training thread writes 64 MB a step; the fault: to memory it has just asked for."""
    size = 64 * MIB
    kept = mmap.mmap(-1, size)
    kept.madvise(mmap.MADV_POPULATE_WRITE if hasattr(mmap, "MADV_POPULATE_WRITE") else mmap.MADV_WILLNEED)
    for i in range(0, size, 4096):
        kept[i] = 1
    page = bytes(MIB)
    trainer = Trainer(run.open(), 20)

    def step():
        memory = private(size) if run.fault else kept
        if run.fault:
            for i in range(0, size, MIB):
                memory[i : i + MIB] = page
            memory.close()
        else:
            memory[:MIB] = page
        trainer.step()

    run.loop(step)


def reclaim(run):
    """Two workers, each of which fills 96 MB of fresh memory for a batch and gives it back; the fault: their group may
    have 64 MB, so that the kernel takes away at one end what they fill at the other."""
    path = os.path.join(run.data, "swap")
    block = os.urandom(MIB)
    group = None
    if run.fault:
        _swap_on(path)
        group = Group("memory")
        group.memory(64 * MIB)

    def make(number):
        memory = private(96 * MIB)
        for i in range(0, len(memory), MIB):
            memory[i : i + MIB] = block
        memory.close()

    pool = Pool(make, begin=lambda index: group and group.join())
    trainer = Trainer(run.open(), 60)

    def step():
        pool.next()
        trainer.step()

    try:
        run.loop(step)
    finally:
        pool.stop()
        if run.fault:
            _swap_off(path)


def swapped(run):
    """The training thread looks at 128 MB that it wrote once, 16 MB a step; the fault: its group may have less, and
    the rest is on a disk."""
    path = os.path.join(run.data, "swap")
    memory = None
    if run.fault:
        _swap_on(path)
    try:
        if run.fault:
            group = Group("memory")
            group.memory(96 * MIB)
            group.join()
        memory = private(128 * MIB)
        block = os.urandom(MIB)
        for i in range(0, len(memory), MIB):
            memory[i : i + MIB] = block
        trainer = Trainer(run.open(), 50)
        number = 0

        def step():
            nonlocal number
            first = number % 8 * 16 * MIB
            number += 1
            for i in range(first, first + 16 * MIB, 4096):
                memory[i]  # pylint: disable=pointless-statement
            trainer.step()

        run.loop(step)
    finally:
        if run.fault:
            memory.close()
            _swap_off(path)


def _swap_off(path):
    os.system(f"swapoff '{path}'")
    os.unlink(path)


def _swap_on(path):
    os.system(f"swapoff '{path}' 2>/dev/null")
    with open(path, "wb") as file:
        os.fchmod(file.fileno(), 0o600)
        for _ in range(256):
            file.write(bytes(MIB))
        file.flush()
        os.fsync(file.fileno())
    if os.system(f"mkswap '{path}' >/dev/null && swapon '{path}'"):
        raise RuntimeError("no swap can be had here")


CASES = {"first-touch": first_touch, "reclaim": reclaim, "swapped": swapped}
