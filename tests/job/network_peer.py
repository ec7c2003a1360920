#!/usr/bin/env python3
"""A peer that answers after as many milliseconds as it is asked to, over its standard input and output: what connects
them to the job's machine starts it."""

import sys
import time

# Where the job finds it.
ADDRESS = ("10.0.2.100", 7000)
SIZE = 4096


def ask(connection, milliseconds):
    """Sends a request and takes the answer whole."""
    connection.sendall(milliseconds.to_bytes(8, "little"))
    left = SIZE
    while left:
        part = connection.recv(left)
        if not part:
            raise ConnectionError("the peer is gone")
        left -= len(part)


def main():
    while request := sys.stdin.buffer.read(8):
        time.sleep(int.from_bytes(request, "little") / 1000)
        sys.stdout.buffer.write(bytes(SIZE))
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
