"""Peers at the other end of a connection or of a mount."""

import os
import queue
import select
import socket
import threading
import time

import served
from group import Group
from pool import Pool
from processes import name_thread, outside
from training import Trainer, drop, files, warm

MIB = 1 << 20


def whole(connection, size):
    data = bytearray()
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            return None
        data += part
    return bytes(data)


def answering(listening, answer, name):
    """Serves one connection after another: a number of eight bytes in, what `answer` makes of it out."""
    name_thread(name)
    while True:
        connection, _ = listening.accept()
        with connection:
            while number := whole(connection, 8):
                connection.sendall(answer(int.from_bytes(number, "little")))


def listening():
    opened = socket.socket()
    opened.bind(("127.0.0.1", 0))
    opened.listen()
    return opened


def fetching(run, answer, name, size):
    """A service that is none of the job's, and a training thread that asks it for each step's features."""
    opened = listening()
    port = opened.getsockname()[1]
    outside(answering, opened, answer, name)
    opened.close()
    trainer = Trainer(run.open(), 60)
    connection = socket.create_connection(("127.0.0.1", port))
    number = 0

    def step():
        nonlocal number
        number += 1
        connection.sendall(number.to_bytes(8, "little"))
        whole(connection, size)
        trainer.step()

    run.loop(step)


def local_service(run):
    """Features from a service on this host, which reads them; the fault: from a disk of 5 MB/s."""
    paths = files(os.path.join(run.data, "features"), 32, MIB // 2, run.seed)
    warm(paths)
    group = None
    if run.fault:
        group = Group("blkio")
        group.disk(run.data, read_bps=5 * MIB)
        drop(paths)

    def answer(number):
        if group and number == 1:
            group.join()
        with open(paths[number % len(paths)], "rb", buffering=0) as file:
            data = file.read()
            if group:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return data

    fetching(run, answer, "features", MIB // 2)


def slow_peer(run):
    """The peer takes 60 ms for an answer instead of 0.5."""

    def answer(number):
        time.sleep(0.06 if run.fault else 0.0005)
        return bytes(4096)

    fetching(run, answer, "feature-store", 4096)


def no_demand(run):
    """A server that waits for requests; they come every 300 ms, from somebody else."""
    opened = listening()
    port = opened.getsockname()[1]
    outside(asking, port)
    trainer = Trainer(run.open(), 30)
    wanted = select.epoll()
    wanted.register(opened, select.EPOLLIN)

    def step():
        while not wanted.poll():
            pass
        connection, _ = opened.accept()
        with connection:
            whole(connection, 8)
            trainer.step()
            connection.sendall(b"answered")

    run.loop(step)


def asking(port):
    name_thread("client")
    while True:
        time.sleep(0.3)
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(bytes(8))
            whole(connection, 8)


def remote_small_files(run):
    """Two workers that open 20 small files a batch on a served file system; the fault: each request to it takes 3 ms
    instead of 0.05."""
    folder = os.path.join(run.data, "exported")
    os.makedirs(folder, exist_ok=True)
    for i in range(4000):
        path = os.path.join(folder, f"{i:05}.txt")
        if not os.path.exists(path):
            with open(path, "wb") as file:
                file.write(os.urandom(3000))
    mounted = os.path.join(run.data, "mounted")
    with served.mounted(folder, mounted, 0.003 if run.fault else 0.00005):

        def make(number):
            for i in range(number * 20, (number + 1) * 20):
                with open(os.path.join(mounted, f"{i % 4000:05}.txt"), "rb", buffering=0) as file:
                    file.read()

        pool = Pool(make)
        trainer = Trainer(run.open(), 80)
        run.train(trainer, pool.next)
        pool.stop()


def five_links(run):
    """The training thread waits for a collector thread, that for a worker process, that for the daemon of a mount, and
    that for its disk; the fault: of 4 MB/s instead of memory."""
    folder = os.path.join(run.data, "exported")
    paths = files(folder, 32, MIB // 4, run.seed)
    warm(paths)
    group = None
    if run.fault:
        group = Group("blkio")
        group.disk(run.data, read_bps=4 * MIB)
        drop(paths)
    mount = os.path.join(run.data, "mounted")
    with served.mounted(folder, mount, group=group):

        def make(number):
            with open(os.path.join(mount, os.path.basename(paths[number % len(paths)])), "rb", buffering=0) as file:
                while file.read(MIB):
                    pass

        pool = Pool(make, workers=1, depth=2)
        collected = queue.Queue(2)

        def collect():
            name_thread("collector")
            while True:
                collected.put(pool.next())

        trainer = Trainer(run.open(), 40)
        threading.Thread(target=collect, daemon=True).start()

        def step():
            collected.get()
            trainer.step()

        run.loop(step)
        pool.stop()


CASES = {
    "five-links": five_links,
    "local-service": local_service,
    "slow-peer": slow_peer,
    "no-demand": no_demand,
    "remote-small-files": remote_small_files,
}
