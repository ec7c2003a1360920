"""Processes that start, stop, sleep and wait for one another."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time

from pool import Pool
from processes import name_thread, outside
from training import Trainer


def polling(run):
    """A thread fills a queue, the training thread polls it; the fault: it sleeps 80 ms between looks."""
    ready = []
    wanted = threading.Event()

    def fill():
        name_thread("filler")
        while True:
            wanted.wait()
            wanted.clear()
            ready.append(1)

    def poll():
        while not ready:
            time.sleep(0.08 if run.fault else 0.0005)
        ready.pop()

    threading.Thread(target=fill, daemon=True).start()
    trainer = Trainer(run.open(), 60)

    def step():
        wanted.set()
        poll()
        trainer.step()

    run.loop(step)


def respawned_workers(run):
    """Two workers that are started as programs of their own, not forked, and import what they need; the fault: new ones
    for every eighth step, an epoch."""
    # Only here: it imports much.
    import epoch_worker  # pylint: disable=import-outside-toplevel

    def spawn():
        return subprocess.Popen(
            [sys.executable, epoch_worker.__file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

    def end():
        for worker in workers:
            worker.kill()
            worker.communicate()

    workers = [spawn(), spawn()]
    trainer = Trainer(run.open(), 50)
    number = 0

    def step():
        nonlocal workers, number
        if run.fault and number % 8 == 0:
            end()
            workers = [spawn(), spawn()]
        worker = workers[number % 2]
        number += 1
        worker.stdin.write(f"{number}\n")
        worker.stdout.readline()
        trainer.step()

    try:
        run.loop(step)
    finally:
        end()


def stopped_worker(run):
    """One worker; the fault: somebody stops it for 250 ms twice a second."""
    pool = Pool(lambda number: time.sleep(0.001), workers=1, depth=1)
    trainer = Trainer(run.open(), 50)
    ended = threading.Event()

    def disturb():
        name_thread("disturber")
        while not ended.wait(0.25):
            os.kill(pool.pids()[0], signal.SIGSTOP)
            ended.wait(0.25)
            os.kill(pool.pids()[0], signal.SIGCONT)

    if run.fault:
        threading.Thread(target=disturb, daemon=True).start()

    def step():
        pool.next()
        trainer.step()

    try:
        run.loop(step)
    finally:
        ended.set()


def answering(connection, delay):
    name_thread("helper")
    while connection.recv(1):
        time.sleep(delay)
        connection.send(b"x")


def unseen_helper(run):
    """A helper process that is none of the job's and that the tracer has no room for, since 64 others have been adopted
    before; the fault: it takes 60 ms to answer."""
    pairs = [socket.socketpair() for _ in range(65)]
    for i, (_, theirs) in enumerate(pairs):
        outside(answering, theirs, 0.0003 if i < 64 or not run.fault else 0.06)
        theirs.close()
    asked = [ours for ours, _ in pairs]

    def keep_busy():
        name_thread("asker")
        while True:
            for connection in asked[:64]:
                connection.send(b"x")
                connection.recv(1)

    trainer = Trainer(run.open(), 50)
    threading.Thread(target=keep_busy, daemon=True).start()

    def step():
        if run.counting:
            asked[64].send(b"x")
            asked[64].recv(1)
        trainer.step()

    run.loop(step)


CASES = {
    "unseen-helper": unseen_helper,
    "polling": polling,
    "respawned-workers": respawned_workers,
    "stopped-worker": stopped_worker,
}
