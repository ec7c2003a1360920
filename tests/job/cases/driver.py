"""Calls into the NVIDIA driver, in machines where a stand-in has its entry points (`tests/nvidia-standin`)."""

import fcntl
import os
import struct
import time

from processes import name_thread, outside
from training import Trainer

RM_CONTROL = 0xC020462A
FB_GET_INFO_V2 = 0x20801303
GPU_GET_PIDS = 0x2080018D
# What the stand-in is told to do.
RETURNS, HOLDS_LOCK, SLEEPS = 0, 1, 2


def call(inner, how, ms=0):
    """A control call on a descriptor of its own, as monitors and runtimes do."""
    fd = os.open("/dev/nvidiactl", os.O_RDWR)
    fcntl.ioctl(fd, RM_CONTROL, struct.pack("<4IQ2I", 0, 0, inner, how, ms * 1000, 0, 0))
    os.close(fd)


def slow_ioctl(run):
    """The driver is asked for its free memory every step; the fault: it takes 60 ms to say."""
    trainer = Trainer(run.open(), 60)
    how = SLEEPS if run.fault else RETURNS

    def step():
        call(FB_GET_INFO_V2, how, 60)
        trainer.step()

    run.loop(step)


def driver_lock(run):
    """The driver is asked for its free memory every step; the fault: a monitor of somebody else's keeps the driver's
    lock for 200 of 250 ms."""

    def monitor():
        name_thread("monitor")
        while True:
            call(GPU_GET_PIDS, HOLDS_LOCK, 200)
            time.sleep(0.05)

    if run.fault:
        outside(monitor)
    trainer = Trainer(run.open(), 60)

    def step():
        call(FB_GET_INFO_V2, HOLDS_LOCK)
        trainer.step()

    run.loop(step)


CASES = {"slow-ioctl": slow_ioctl, "driver-lock": driver_lock}
