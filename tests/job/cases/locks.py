"""Locks that somebody else holds."""

import ctypes
import hashlib
import mmap
import threading
import time

from processes import name_thread
from training import Trainer


def hold_the_interpreter(width):
    return sum(i * i for i in range(width))


def interpreter_lock(run):
    """A thread keeps statistics in Python beside the training thread; the fault: it never rests."""
    begin = threading.Event()

    def keep_statistics():
        name_thread("statistics")
        begin.wait()
        while True:
            hold_the_interpreter(20_000)

    threading.Thread(target=keep_statistics, daemon=True).start()
    trainer = Trainer(run.open(), 20, launches=20)
    if run.fault:
        begin.set()
    run.loop(trainer.step)


def mapper():
    """`mmap` and `munmap` of the C library, outside the interpreter's lock: maps so many bytes, filled where asked for,
    and unmaps them."""
    library = ctypes.CDLL(None)
    library.mmap.restype = ctypes.c_void_p
    sizes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    library.mmap.argtypes, library.munmap.argtypes = sizes, sizes[:2]

    def once(size, flags=0):
        address = library.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | flags,
                               -1, 0)
        library.munmap(address, size)

    return once


MAP_POPULATE = 0x8000


def mapping_lock(run):
    """The training thread maps and unmaps for each step; the fault: other threads of the process map, fill and unmap
    all the time, and hold the lock of its address space."""
    begin = threading.Event()
    once = mapper()

    def churn():
        name_thread("churn")
        begin.wait()
        while True:
            once(64 << 20, MAP_POPULATE)

    for _ in range(4):
        threading.Thread(target=churn, daemon=True).start()
    trainer = Trainer(run.open(), 30)
    if run.fault:
        begin.set()

    def step():
        for _ in range(2):
            once(4096)
        trainer.step()

    run.loop(step)


class Mutex:
    """One of the C library's, as extension modules have them; waits outside the interpreter's lock."""

    def __init__(self):
        self.library = ctypes.CDLL(None)
        self.memory = ctypes.create_string_buffer(64)

    def __enter__(self):
        self.library.pthread_mutex_lock(self.memory)

    def __exit__(self, *_):
        self.library.pthread_mutex_unlock(self.memory)


def convoy(run):
    """The training thread takes a mutex for each step, as three others do; the fault: they keep it for 25 ms."""
    mutex = Mutex()
    block = bytes(1 << 20)
    begin = threading.Event()

    def hold():
        name_thread("holder")
        begin.wait()
        while True:
            with mutex:
                for _ in range(12):
                    hashlib.sha256(block).digest()
            # Without a pause the lock would never be anybody else's.
            time.sleep(0.001)

    for _ in range(3):
        threading.Thread(target=hold, daemon=True).start()
    trainer = Trainer(run.open(), 40)
    if run.fault:
        begin.set()

    def step():
        with mutex:
            pass
        trainer.step()

    run.loop(step)


CASES = {"convoy": convoy, "interpreter-lock": interpreter_lock, "mapping-lock": mapping_lock}
