"""What a job asks of the kernel for its threads and processes."""

import ctypes
import os
import signal
import threading

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15


def name_thread(name):
    """Names the calling thread as `ps` and `top` show it."""
    ctypes.CDLL(None).prctl(PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def dies_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def outside(function, *arguments):
    """Runs a function in a process that is none of the job's, until the job is gone. Returns its process id."""
    reading, writing = os.pipe()
    told, tell = os.pipe()
    middle = os.fork()
    if middle:
        os.waitpid(middle, 0)
        os.close(reading)
        os.close(tell)
        # `writing` stays open for as long as this process, and the children that die with it.
        with os.fdopen(told) as file:
            return int(file.read())
    os.setsid()
    child = os.fork()
    if child:
        os.write(tell, str(child).encode())
        os._exit(0)
    os.close(writing)
    os.close(tell)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with, args=(reading,), daemon=True).start()
    try:
        function(*arguments)
    finally:
        os._exit(0)


def _end_with(reading):
    os.read(reading, 1)
    os._exit(0)
