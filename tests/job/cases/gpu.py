"""What the training thread asks of the device and its driver."""

import ctypes

from device import CudaError
from pool import Pool
from training import Trainer

MIB = 1 << 20


def checked(code):
    """Around calls that go straight to the driver. A framework's own functions are native: the innermost Python of such
    a call is whoever called the framework."""
    if code != 0:
        raise CudaError(f"a call failed with {code}")


def sync_every_step(run):
    """Runs three steps ahead of the device, which hides 12 ms of host work a step; the fault: a scalar is read back
    every step, and the work is done while the device has nothing to do."""
    device = run.open()
    trainer = Trainer(device, 30)
    numbers = list(range(300_000))
    done = [device.event() for _ in range(4)]
    number = 0

    def read_back():
        checked(device.cuda.cuStreamSynchronize(trainer.stream))

    def step():
        nonlocal number
        trainer.launch()
        if run.fault:
            read_back()
        else:
            device.record(done[number % 4], trainer.stream)
            number += 1
            if number >= 4:
                device.wait_event(done[number % 4])
        sum(numbers)
        sorted(numbers)

    run.loop(step, settle=trainer.wait)


def tiny_kernels(run):
    """The training thread launches 2,000 kernels a step; the fault: each lasts 5 us instead of 50."""
    device = run.open()
    stream = device.stream()
    one, none = ctypes.c_uint(1), ctypes.c_void_p()
    blocks, shared = ctypes.c_uint(5 if run.fault else 50), ctypes.c_uint(0)
    kernel = (device.function("tiny"), blocks, one, one, one, one, one, shared, stream, none, none)
    shape = list(range(8000))

    def run_operator():
        # What a framework does for each.
        sum(shape)
        checked(device.cuda.cuLaunchKernel(*kernel))

    def step():
        for _ in range(2000):
            run_operator()
        device.synchronize(stream)

    run.loop(step)


def free_every_step(run):
    """The allocator's cache is emptied every step, and every free waits for the device."""
    device = run.open()
    trainer = Trainer(device, 40)
    kept = device.alloc(MIB)

    def empty_cache():
        device.free(device.alloc(MIB))

    def work():
        return sorted(range(200_000))

    def step():
        trainer.launch()
        if run.fault:
            empty_cache()
        work()
        if not run.fault:
            trainer.wait()

    run.loop(step, settle=trainer.wait)
    device.free(kept)


def load_at_run_time(run):
    """A module that takes 30 ms to load, once; the fault: every second step."""
    device = run.open()
    trainer = Trainer(device, 40)
    number = 0

    def step():
        nonlocal number
        trainer.step()
        number += 1
        if run.fault and number % 2 == 0:
            device.load("load_30ms")

    run.loop(step)


def pageable_copies(run):
    """The training thread copies 192 MB to the device for each step; the fault: from memory that is not pinned."""
    device = run.open()
    trainer = Trainer(device, 60)
    size = 192 * MIB
    target = device.alloc(size)
    pinned = device.host_alloc(size)
    pageable = ctypes.create_string_buffer(size)

    def step():
        if run.fault:
            device.copy_to_device(target, ctypes.addressof(pageable), size, trainer.stream)
        else:
            device.copy_to_device(target, pinned, size // 64, trainer.stream)
        trainer.step()

    run.loop(step)


def large_copies(run):
    """Pinned copies on the training stream, over a link of 500 MB/s; the fault: of 24 MB instead of half a one."""
    device = run.open()
    trainer = Trainer(device, 60)
    size = 24 * MIB
    target, pinned = device.alloc(size), device.host_alloc(size)

    def step():
        device.copy_to_device(target, pinned, size if run.fault else MIB // 2, trainer.stream)
        trainer.step()

    run.loop(step)


def queued_and_idle(run):
    """Queues a step's kernels and waits for them; the fault: before each of ten the device stands still for 6 ms."""
    device = run.open()
    trainer = Trainer(device, 40)
    if run.fault:
        trainer.kernel = device.function("stalled6ms_train_step")

    run.loop(trainer.step)


def healthy_sync(run):
    """Synchronises every step; batches are fetched ahead."""
    pool = Pool(lambda number: sum(range(20_000)))
    trainer = Trainer(run.open(), 200)

    def step():
        trainer.launch()
        pool.next()
        trainer.wait()

    run.loop(step)


def healthy_async(run):
    """Runs three steps ahead of the device and waits for the one before."""
    pool = Pool(lambda number: sum(range(20_000)))
    device = run.open()
    trainer = Trainer(device, 50)
    done = [device.event() for _ in range(4)]
    number = 0

    def step():
        nonlocal number
        pool.next()
        trainer.launch()
        device.record(done[number % 4], trainer.stream)
        number += 1
        if number >= 4:
            device.wait_event(done[number % 4])

    run.loop(step, settle=trainer.wait)


CASES = {
    "sync-every-step": sync_every_step,
    "tiny-kernels": tiny_kernels,
    "free-every-step": free_every_step,
    "load-at-run-time": load_at_run_time,
    "pageable-copies": pageable_copies,
    "large-copies": large_copies,
    "queued-and-idle": queued_and_idle,
    "healthy": healthy_sync,
    "healthy-async": healthy_async,
    "unknown-device": healthy_sync,
}
