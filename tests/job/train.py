#!/usr/bin/env python3
"""A training job of the usual shape: files, worker processes, a copy thread, launches and a synchronise.

Prints one line of JSON when it ends: {"steps": ..., "seconds": ..., "steps_per_second": ...}.
Steps before the ready file is written (warm-up) do not count.
"""

import argparse
import ctypes
import json
import os
import queue
import signal
import sys
import threading
import time

import dataset
import loader
import training
from device import Device
from processes import name_thread


def parse():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--cuda", default=os.environ.get("WHYIDLE_CUDA", "libcuda.so.1"), help="driver library")
    options.add_argument("--device", type=int, default=0, help="CUDA ordinal")
    options.add_argument("--data", required=True, help="folder of the JPEG files; made where missing")
    options.add_argument("--images", type=int, default=256)
    options.add_argument("--source-size", type=int, default=320, help="width and height of the files' pictures")
    options.add_argument("--pad-kib", type=int, default=0, help="bytes after the picture: read, not decoded")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--steps", type=int, help="end after so many steps")
    options.add_argument("--seconds", type=float, help="end after so long")
    options.add_argument("--step-ms", type=float, default=100.0, help="device time of a step")
    options.add_argument("--launches", type=int, default=20, help="kernels a step")
    options.add_argument("--sync", choices=["every", "never"], default="every", help="synchronise every step")
    options.add_argument("--workers", type=int, default=2)
    options.add_argument("--prefetch", type=int, default=4, help="batches under way per worker")
    options.add_argument("--batch", type=int, default=4)
    options.add_argument("--image-size", type=int, default=224, help="width and height after resizing")
    options.add_argument("--work-factor", type=int, default=1, help="times each picture is decoded and resized")
    options.add_argument("--cold", action="store_true", help="leave nothing in the page cache")
    options.add_argument("--queue", choices=["simple", "feeder"], default="simple",
                         help="results written by the worker itself, or by a thread of it")
    options.add_argument("--warmup", type=int, default=3, help="steps before the ready file")
    options.add_argument("--ready-file", help="written when warm: workers up, queue full, first steps done")
    chosen = options.parse_args()
    for name in ("images", "source_size", "launches", "workers", "prefetch", "batch", "image_size", "work_factor"):
        if getattr(chosen, name) < 1:
            options.error(f"--{name.replace('_', '-')} must be at least 1")
    return chosen


def copy_batches(device, batches, ready, free, stop):
    """The copy thread: shared memory to pinned memory to the device, one batch after another."""
    name_thread("copy")
    device.use()
    stream = device.stream()
    pinned = device.host_alloc(batches.bytes)
    addresses = [ctypes.addressof(ctypes.c_char.from_buffer(slot)) for slot in batches.slots]
    while not stop.is_set():
        slot = batches.next()
        ctypes.memmove(pinned, addresses[slot], batches.bytes)
        batches.order(slot)
        target = free.get()
        if target is None:
            return
        device.copy_to_device(target, pinned, batches.bytes, stream)
        device.synchronize(stream)
        ready.put(target)


def guard(stop, ready, target, *arguments):
    """Runs a thread's function; its failure ends the job instead of leaving it waiting."""
    try:
        target(*arguments)
    except Exception as error:  # pylint: disable=broad-except
        if not stop.is_set():
            ready.put(error)


class Trainer:
    def __init__(self, options, device, ready, free):
        self.device, self.ready, self.free, self.sync = device, ready, free, options.sync
        self.stream = device.stream()
        self.kernel = device.function("train_step")
        whole = max(1, round(options.step_ms * 1000))
        each, rest = divmod(whole, options.launches)
        self.durations = [each + (i < rest) for i in range(options.launches)]
        self.held = None

    def step(self):
        batch = self.ready.get()
        if isinstance(batch, Exception):
            raise batch
        for microseconds in self.durations:
            if microseconds > 0:
                self.device.launch(self.kernel, microseconds, self.stream)
        if self.sync == "every":
            self.device.synchronize(self.stream)
            self.free.put(batch)
            return
        # Without a synchronise the batch may still be in use; the one before it is not waited for either,
        # as in a loop that lets the host run ahead as far as the driver allows.
        if self.held is not None:
            self.free.put(self.held)
        self.held = batch


def main():
    options = parse()
    paths = dataset.prepare(
        options.data, options.images, options.source_size, options.pad_kib * 1024, options.seed)
    if options.cold:
        training.drop(paths)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(signal.SIGINT, lambda *_: stop.set())
    batches = loader.Loader(paths, options.batch, options.image_size, options.workers, options.prefetch,
                            options.work_factor, options.cold, options.queue)
    device = Device(options.cuda, options.device)
    ready, free = queue.Queue(), queue.Queue()
    # Deep enough to ride out a late batch: every slot's batch may lie on the device already.
    depth = options.workers * options.prefetch
    for _ in range(depth):
        free.put(device.alloc(batches.bytes))
    copier = threading.Thread(
        target=guard, args=(stop, ready, copy_batches, device, batches, ready, free, stop), daemon=True)
    copier.start()
    while ready.qsize() < depth and copier.is_alive() and not stop.is_set():
        time.sleep(0.01)
    trainer = Trainer(options, device, ready, free)
    for _ in range(options.warmup):
        if not stop.is_set():
            trainer.step()
    if options.ready_file:
        with open(options.ready_file + ".part", "w", encoding="utf-8") as file:
            file.write(f"{os.getpid()}\n")
        os.replace(options.ready_file + ".part", options.ready_file)
    steps, start = 0, time.monotonic()
    while not stop.is_set():
        if options.steps is not None and steps >= options.steps:
            break
        if options.seconds is not None and time.monotonic() - start >= options.seconds:
            break
        trainer.step()
        steps += 1
    device.synchronize(trainer.stream)
    seconds = time.monotonic() - start
    rate = steps / seconds if seconds > 0 else 0.0
    stop.set()
    free.put(None)
    batches.stop()
    print(json.dumps({"steps": steps, "seconds": round(seconds, 6), "steps_per_second": round(rate, 6)}), flush=True)


if __name__ == "__main__":
    try:
        main()
    except (OSError, RuntimeError) as error:
        sys.exit(f"train.py: {error}")
