#!/usr/bin/env python3
"""One case of the scoreboard: a job on the simulated device, with its fault or without.

Writes the ready file once it is warm and goes on with its steps; counts its steps from the moment the go file is
there; then writes {"start_ns", "end_ns", ...} (CLOCK_MONOTONIC) to the result file, and goes on until it is ended.
"""

import argparse
import importlib
import json
import os
import pkgutil
import signal
import sys
import threading
import time

import cases
from device import Device

# Read when the library is loaded, which importing a case may do: waiting threads spin, as other runtimes' do anyway.
os.environ["OMP_WAIT_POLICY"] = "active"


def parse():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("case")
    options.add_argument("--cuda", required=True, help="driver library")
    options.add_argument("--data", required=True, help="a folder of the case's own, on a disk")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--steps", type=int, required=True, help="to count")
    options.add_argument("--fault", action="store_true")
    for name in ("ready", "go", "result"):
        options.add_argument(f"--{name}", required=True, help="a file")
    return options.parse_args()


class Run:
    """What a case is given, and what counts its steps."""

    def __init__(self, options):
        self.fault, self.seed, self.steps, self.data = options.fault, options.seed, options.steps, options.data
        self.cuda = options.cuda
        self._options = options
        # From the first counted step on.
        self.counting = False
        self._stopped = threading.Event()
        self._done = 0
        self._told = {}
        os.makedirs(self.data, exist_ok=True)

    def open(self, ordinal=0, blocking=True):
        """The device; waits for it asleep where `blocking`, else spins as the real driver does by default.
        After all workers are forked: a context does not survive a fork."""
        return Device(self.cuda, ordinal, blocking)

    def tell(self, **numbers):
        """More for the result file."""
        self._told.update(numbers)

    @property
    def counted(self):
        """Share of the counted steps that are done."""
        return self._done / self.steps

    @property
    def stopped(self):
        return self._stopped.is_set()

    def train(self, trainer, fetch):
        """Fetches a batch and trains on it, step by step."""

        def step():
            fetch()
            trainer.step()

        self.loop(step)

    def loop(self, step, warmup=5, settle=lambda: None):
        """Does steps to the end; `settle` waits for the device before a time is taken."""
        signal.signal(signal.SIGTERM, lambda *_: self._stopped.set())
        for _ in range(warmup):
            step()
        _write(self._options.ready, {"pid": os.getpid()})
        while not os.path.exists(self._options.go) and not self.stopped:
            step()
        settle()
        self.counting = True
        start = time.monotonic_ns()
        while self._done < self.steps and not self.stopped:
            step()
            self._done += 1
        settle()
        _write(self._options.result, {"start_ns": start, "end_ns": time.monotonic_ns(), **self._told})
        while not self.stopped:
            step()
        settle()


def _write(path, value):
    with open(path + ".part", "w", encoding="utf-8") as file:
        json.dump(value, file)
    os.replace(path + ".part", path)


def main():
    options = parse()
    found = {}
    for module in pkgutil.iter_modules(cases.__path__):
        # Some need packages that others do without: no further than to the one that has it.
        found.update(importlib.import_module(f"cases.{module.name}").CASES)
        if options.case in found:
            return found[options.case](Run(options))
    sys.exit(f"case.py: no case {options.case}; there are {', '.join(sorted(found))}")


if __name__ == "__main__":
    main()
