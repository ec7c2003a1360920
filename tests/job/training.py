"""What most cases share: a device that trains on batches, and files to read them from."""

import os
import random


class Trainer:
    """Launches a step's kernels on batches and synchronises, or runs ahead of the device."""

    def __init__(self, device, step_ms, launches=10):
        self.device = device
        self.stream = device.stream()
        self.kernel = device.function("train_step")
        whole = round(step_ms * 1000)
        self.durations = [whole // launches] * (launches - 1)
        self.durations.append(whole - sum(self.durations))

    def launch(self):
        for microseconds in self.durations:
            self.device.launch(self.kernel, microseconds, self.stream)

    def wait(self):
        self.device.synchronize(self.stream)

    def step(self):
        self.launch()
        self.wait()


def files(folder, count, size, seed):
    """Makes files of random bytes unless they are there; returns their paths. Their pages are clean."""
    os.makedirs(folder, exist_ok=True)
    source = random.Random(seed)
    paths = [os.path.join(folder, f"{i:05}.bin") for i in range(count)]
    made = False
    for path in paths:
        block = source.randbytes(1 << 16)
        if os.path.exists(path) and os.path.getsize(path) == size:
            continue
        with open(path, "wb") as file:
            whole, rest = divmod(size, len(block))
            for _ in range(whole):
                file.write(block)
            file.write(block[:rest])
        made = True
    if made:
        os.sync()
    return paths


def read(path, cold):
    """A file whole; leaves nothing of it in the page cache where `cold`."""
    with open(path, "rb", buffering=0) as file:
        data = file.read()
        if cold:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return data


def drop(paths):
    """Leaves nothing of these files in the page cache."""
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def warm(paths):
    for path in paths:
        with open(path, "rb") as file:
            while file.read(1 << 20):
                pass
