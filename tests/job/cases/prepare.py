"""Decoding, and what else is done to a batch on the host."""

import ctypes
import io
import os
import zlib

import dataset
from PIL import Image
from pool import Pool
from training import Trainer


M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3


def keep_memory():
    """What is freed stays with the process: else each picture's memory is touched for the first time, and that is a
    second fault beside the decoding (`first-touch`)."""
    for parameter in (M_TRIM_THRESHOLD, M_MMAP_THRESHOLD):
        ctypes.CDLL(None).mallopt(parameter, 32 << 20)


def decode(data, size=224):
    with Image.open(io.BytesIO(data)) as picture:
        return picture.convert("RGB").resize((size, size), Image.BILINEAR).tobytes()


def pictures(run, size=640):
    keep_memory()
    paths = dataset.prepare(os.path.join(run.data, "images"), 16, size, 0, run.seed)
    read = []
    for path in paths:
        with open(path, "rb") as file:
            read.append(file.read())
    return read


def decoded_by(run, workers, depth, often, step_ms, batch=1):
    """Workers decode a batch's pictures; the fault: each of them so many times over."""
    encoded = pictures(run)
    times = often if run.fault else 1

    def make(number):
        for i in range(batch * times):
            decode(encoded[(number + i) % len(encoded)])

    pool = Pool(make, workers=workers, depth=depth)
    trainer = Trainer(run.open(), step_ms)
    run.train(trainer, pool.next)


def too_few_workers(run):
    """Two workers that decode a picture for each batch; the fault: 44, which takes each of them six steps' time."""
    decoded_by(run, workers=2, depth=2, often=44, step_ms=40)


def lockstep_workers(run):
    """Four batches at a time, then a long wait: the collector asks for four more only when all four are used."""
    encoded = pictures(run)
    times = 10 if run.fault else 1

    def make(number):
        for i in range(times):
            decode(encoded[(number + i) % len(encoded)])

    pool = Pool(make, workers=4, depth=1)
    trainer = Trainer(run.open(), 25)
    number = 0

    def step():
        nonlocal number
        if number % 4 == 0:
            batch = [pool.next() for _ in range(4)]
            assert len(batch) == 4
        number += 1
        trainer.step()

    run.loop(step)


def no_workers(run):
    """Load and compute alternate in one thread."""
    encoded = pictures(run, 1280)
    small = pictures(run, 64) if not run.fault else encoded
    trainer = Trainer(run.open(), 60)
    number = 0

    def step():
        nonlocal number
        number += 1
        for i in range(5):
            decode((encoded if run.fault else small)[(number + i) % 16])
        trainer.step()

    run.loop(step)


def build_target_map(width, height, boxes):
    """Marks boxes in a map cell by cell, as written by someone in a hurry."""
    cells = [0] * (width * height)
    for left, top, right, bottom in boxes:
        for y in range(top, bottom):
            for x in range(left, right):
                cells[y * width + x] += 1
    return cells


def python_targets(run):
    """Target maps built by Python loops for each sample, in workers."""
    boxes = [(8 * i % 900, 4 * i % 400, 8 * i % 900 + 100, 4 * i % 400 + 100) for i in range(400 if run.fault else 3)]
    pool = Pool(lambda number: bool(build_target_map(1024, 512, boxes)))
    trainer = Trainer(run.open(), 60)
    run.train(trainer, pool.next)


def python_in_main(run):
    """The same in the training thread, and for longer than the device is busy: running ahead would not hide it."""
    boxes = [(8 * i, 4 * i, 8 * i + 100, 4 * i + 100) for i in range(80 if run.fault else 2)]
    trainer = Trainer(run.open(), 20)

    def step():
        build_target_map(512, 512, boxes[:20])
        build_target_map(1024, 512, boxes)
        trainer.step()

    run.loop(step)


def compress_in_main(run):
    """The training thread packs what it logs; the fault: ten times as much."""
    block = os.urandom(1 << 16) * 8
    trainer = Trainer(run.open(), 60)

    def step():
        for _ in range(10 if run.fault else 1):
            zlib.compress(block, 1)
        trainer.step()

    run.loop(step)


CASES = {
    "too-few-workers": too_few_workers,
    "lockstep-workers": lockstep_workers,
    "no-workers": no_workers,
    "python-targets": python_targets,
    "python-in-main": python_in_main,
    "compress-in-main": compress_in_main,
}
