"""Forked worker processes that read, decode and resize, and hand batches over in order."""

import io
import mmap
import multiprocessing
import os
import signal

from PIL import Image

from processes import dies_with_parent, name_thread


class Loader:
    """Batches of `batch * pixels` bytes in shared memory, `depth` of them under way at any time.

    Fork it before the device is opened: a context does not survive a fork.
    """

    def __init__(self, paths, batch, image_size, workers, prefetch, work_factor, cold, queue):
        self.bytes = batch * image_size * image_size * 3
        depth = workers * prefetch
        self.slots = [mmap.mmap(-1, self.bytes) for _ in range(depth)]
        context = multiprocessing.get_context("fork")
        make = context.SimpleQueue if queue == "simple" else context.Queue
        self.orders = [make() for _ in range(workers)]
        self.results = make()
        job = (paths, batch, image_size, work_factor, cold)
        self.workers = [
            context.Process(target=work, args=(i, self.orders[i], self.results, self.slots, job), daemon=True)
            for i in range(workers)
        ]
        for worker in self.workers:
            worker.start()
        self.ordered = 0
        self.early = {}
        self.delivered = 0
        for slot in range(depth):
            self.order(slot)

    def order(self, slot):
        """Asks for one more batch, to be put into `slot`."""
        self.orders[self.ordered % len(self.orders)].put((self.ordered, slot))
        self.ordered += 1

    def next(self):
        """The next batch in order, as its slot; hand it back with `order`."""
        while self.delivered not in self.early:
            number, slot = self.results.get()
            if number is None:
                raise RuntimeError(f"a worker failed: {slot}")
            self.early[number] = slot
        slot = self.early.pop(self.delivered)
        self.delivered += 1
        return slot

    def stop(self):
        for worker in self.workers:
            worker.terminate()
        for worker in self.workers:
            worker.join(timeout=5)
            if worker.is_alive():
                worker.kill()


def work(index, orders, results, slots, job):
    paths, batch, image_size, work_factor, cold = job
    name_thread(f"loader-{index}")
    dies_with_parent()
    # Ended by the parent; an interrupt typed at the terminal is the parent's to handle.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        while True:
            number, slot = orders.get()
            target = slots[slot]
            target.seek(0)
            for i in range(batch):
                path = paths[(number * batch + i) % len(paths)]
                target.write(decode(read(path, cold), image_size, work_factor))
            results.put((number, slot))
    except Exception as error:  # pylint: disable=broad-except
        results.put((None, repr(error)))


def read(path, cold):
    fd = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(fd).st_size
        data = os.read(fd, size)
        while len(data) < size:
            more = os.read(fd, size - len(data))
            if not more:
                break
            data += more
        if cold:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        return data
    finally:
        os.close(fd)


def decode(data, image_size, work_factor):
    for _ in range(work_factor):
        with Image.open(io.BytesIO(data)) as picture:
            pixels = picture.convert("RGB").resize((image_size, image_size), Image.BILINEAR).tobytes()
    return pixels
