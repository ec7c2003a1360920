# Where every thread of this program is, and since when, written down by itself: `tid from to frame frame ...`
# a line, frames as `line:function` from the innermost. Blocks and computes in functions that differ in what
# they block in, in depth, and in kind. Runs on 3.8 and later.
#
# usage: truth.py FILE ROUNDS WORK
#
# WORK says whose threads they are: `threads` of the program and of a worker it forks, those of a program of which a
# worker was just `forked`, of workers begun by `spawn` or `forkserver`, or of `interpreters` within the program.

import os
import sys
import threading
import time

now = time.monotonic_ns
STEP = 0.012
SPIN = 40000000


def here(more):
    """The frames of the caller, the innermost `more` lines further down."""
    frame = sys._getframe(1)
    frames = []
    while frame is not None:
        code = frame.f_code
        name = getattr(code, "co_qualname", code.co_name)
        frames.append("%d:%s" % (frame.f_lineno + more, name.replace(" ", "_")))
        more = 0
        frame = frame.f_back
    return " ".join(frames)


class Log:
    def __init__(self, path):
        self.path = path
        self.lock = threading.Lock()
        self.lines = []

    def add(self, since, until, frames):
        self.lines.append("%d %d %d %s\n" % (threading.get_native_id(), since, until, frames))

    def write(self):
        with open(self.path, "a") as file:
            file.writelines(self.lines)
        self.lines = []


def sleeps(log):
    frames = here(1)
    since = now(); time.sleep(STEP); until = now()
    log.add(since, until, frames)


def sleeps_elsewhere(log):
    frames = here(1)
    since = now(); time.sleep(STEP); until = now()
    log.add(since, until, frames)

    frames = here(1)
    since = now(); time.sleep(STEP); until = now()
    log.add(since, until, frames)


def computes(log):
    end = now() + SPIN
    frames = here(2)
    since = until = now()
    while now() < end: until = now()
    log.add(since, until, frames)


def computes_in_a_builtin(log):
    frames = here(1)
    since = now(); sum(range(1500000)); until = now()
    log.add(since, until, frames)


def reads(log):
    readable, writable = os.pipe()
    timer = threading.Timer(STEP, os.write, (writable, b"x"))
    timer.start()
    frames = here(1)
    since = now(); os.read(readable, 1); until = now()
    log.add(since, until, frames)
    timer.join()
    os.close(readable)
    os.close(writable)


def locks(log):
    lock = threading.Lock()
    lock.acquire()
    timer = threading.Timer(STEP, lock.release)
    timer.start()
    frames = here(1)
    since = now(); lock.acquire(); until = now()
    log.add(since, until, frames)
    timer.join()


def deep(log, depth):
    if depth == 0:
        return sleeps(log)
    deep(log, depth - 1)


class Größe:
    def __init__(self, log):
        self.log = log

    def schläft(self):
        frames = here(1)
        since = now(); time.sleep(STEP); until = now()
        self.log.add(since, until, frames)

    def 睡觉(self):
        frames = here(1)
        since = now(); time.sleep(STEP); until = now()
        self.log.add(since, until, frames)

    def 𠀀(self):
        def inner():
            frames = here(1)
            since = now(); time.sleep(STEP); until = now()
            self.log.add(since, until, frames)

        inner()

    def __call__(self):
        self.schläft()

    def __lt__(self, other):
        sleeps(self.log)
        return False


def gives(log):
    for i in range(2):
        frames = here(1)
        since = now(); time.sleep(STEP); until = now()
        log.add(since, until, frames)
        yield i


def takes(log):
    for _ in gives(log):
        pass
    list(gives(log))


def calls_back(log):
    sorted([Größe(log), Größe(log)])
    list(map(lambda _: sleeps(log), [1]))


def made(log):
    # Code that is made, runs, and is gone, over and over: another may come to lie where it was.
    for name in ("first", "second", "third"):
        space = {"here": here, "now": now, "log": log, "time": time, "STEP": STEP}
        source = "def %s():\n frames = here(1)\n since = now(); time.sleep(STEP); until = now()\n log.add(since, until, frames)\n%s()\n"
        exec(compile(source % (name, name), "<made>", "exec"), space)


def work(log, rounds):
    size = Größe(log)
    for _ in range(rounds):
        sleeps(log)
        sleeps_elsewhere(log)
        computes(log)
        computes_in_a_builtin(log)
        reads(log)
        locks(log)
        deep(log, 20)
        size()
        size.睡觉()
        size.𠀀()
        takes(log)
        calls_back(log)
        made(log)


def alone(path, rounds):
    """Works in one thread, and writes down where it was when all is done."""
    log = Log(path)
    work(log, rounds)
    log.write()


def begun(path, rounds):
    """Threads at work, with where each writes it down."""
    logs = [Log(path) for _ in range(3)]
    threads = [threading.Thread(target=work, args=(log, rounds)) for log in logs]
    for thread in threads:
        thread.start()
    return logs, threads


def threads(path, rounds):
    logs, threads = begun(path, rounds)
    child = os.fork()
    if child == 0:
        alone(path + ".child", rounds)
        os._exit(0)
    for thread in threads:
        thread.join()
    os.waitpid(child, 0)
    for log in logs:
        log.write()


def forked(path, rounds):
    """Threads at work while a child stands still that has not yet made its parent's memory its own."""
    import ctypes
    import signal

    signal.signal(signal.SIGUSR1, lambda *_: None)
    libc = ctypes.CDLL(None)
    libc.__register_atfork(None, None, ctypes.cast(libc.pause, ctypes.c_void_p), None)
    logs, threads = begun(path, rounds)
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    time.sleep(0.5)
    os.kill(child, signal.SIGUSR1)
    for thread in threads:
        thread.join()
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    for log in logs:
        log.write()


def workers(path, rounds, way):
    import multiprocessing

    context = multiprocessing.get_context(way)
    workers = [context.Process(target=alone, args=(path + ".%d" % i, rounds)) for i in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    Log(path).write()


def interpreters(path, rounds):
    try:
        import _interpreters as module
    except ImportError:
        import _xxsubinterpreters as module
    run = getattr(module, "exec", None) or module.run_string
    # Those that are isolated have threads from 3.12 on.
    options = {"isolated": False} if (3, 9) <= sys.version_info < (3, 12) else {}
    inside = "__name__ = 'inside'; exec(compile(open(%r).read(), %r, 'exec'), globals()); alone(%r, %d)"

    def one(i):
        log = Log(path)
        interpreter = module.create(**options)
        source = inside % (__file__, __file__, path + ".%d" % i, rounds)
        frames = here(1)
        since = now(); failed = run(interpreter, source); until = now()
        if failed is not None:
            raise RuntimeError(failed)
        # From 3.12 on the thread is seen to be inside, where it tells all that is asked of it.
        if sys.version_info < (3, 12):
            log.add(since, until, frames)
        module.destroy(interpreter)
        return log

    logs = [one(0)]
    thread = threading.Thread(target=lambda: logs.append(one(1)))
    thread.start()
    thread.join()
    for log in logs:
        log.write()


def main():
    path, rounds, way = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    print("ready", flush=True)
    sys.stdin.readline()
    if way == "threads":
        threads(path, rounds)
    elif way == "forked":
        forked(path, rounds)
    elif way == "interpreters":
        interpreters(path, rounds)
    else:
        workers(path, rounds, way)
    print("done", flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main()
