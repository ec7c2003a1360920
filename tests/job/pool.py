"""Worker processes that make items and hand them over in order, a fixed number of them under way."""

import multiprocessing
import os
import signal

from processes import dies_with_parent, name_thread


class Pool:
    """`make(number)` runs in the workers; `next()` gives its results in the order of the numbers.

    `depth` items a worker are under way. `begin(index)` runs once in each worker.
    """

    def __init__(self, make, workers=2, depth=4, begin=None):
        methods = multiprocessing.get_context("fork")
        self.orders = [methods.SimpleQueue() for _ in range(workers)]
        self.results = methods.SimpleQueue()
        self.workers = [
            methods.Process(target=work, args=(f"loader-{i}", i, begin, make, order, self.results), daemon=True)
            for i, order in enumerate(self.orders)
        ]
        for worker in self.workers:
            worker.start()
        self.ordered = self.delivered = 0
        self.early = {}
        for _ in range(workers * depth):
            self._order()

    def pids(self):
        return [worker.pid for worker in self.workers]

    def _order(self):
        self.orders[self.ordered % len(self.orders)].put(self.ordered)
        self.ordered += 1

    def next(self):
        while self.delivered not in self.early:
            number, item = self.results.get()
            if isinstance(item, Failed):
                raise RuntimeError(f"a worker failed: {item.why}")
            self.early[number] = item
        self.delivered += 1
        self._order()
        return self.early.pop(self.delivered - 1)

    def stop(self):
        for worker in self.workers:
            worker.terminate()
        for worker in self.workers:
            worker.join()


class Failed:
    def __init__(self, why):
        self.why = why


def work(name, index, begin, make, orders, results):
    name_thread(name)
    dies_with_parent()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    parent = os.getppid()
    if begin:
        begin(index)
    while os.getppid() == parent:
        number = orders.get()
        try:
            item = make(number)
        except Exception as error:  # pylint: disable=broad-except
            item = Failed(repr(error))
        results.put((number, item))
