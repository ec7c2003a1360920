"""What numerical libraries do, on their own threads and on ours, without an end."""
import io, multiprocessing, threading
import numpy
from PIL import Image

SIDE = 320


def multiply():
    matrix = numpy.random.default_rng(1).random((SIDE, SIDE))
    while True:
        matrix = matrix @ matrix
        matrix /= numpy.abs(matrix).max()


def order():
    source = numpy.random.default_rng(2)
    while True:
        numbers = source.integers(0, 1 << 30, 100000)
        numpy.sort(numbers)
        numpy.argsort(numbers, kind="stable")
        names = numbers[:2000].astype(str)
        names.sort()
        sorted(names.tolist(), key=lambda name: (len(name), name))


def pictures():
    pixels = numpy.random.default_rng(3).integers(0, 256, (SIDE, SIDE, 3), dtype=numpy.uint8)
    while True:
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "JPEG", quality=90)
        file.seek(0)
        small = Image.open(file).convert("RGB").resize((SIDE // 2, SIDE // 2), Image.BICUBIC)
        pixels = numpy.asarray(small.resize((SIDE, SIDE), Image.BICUBIC)).copy()


def worker(pipe, others):
    # Else its own copy would keep it waiting when the parent is gone.
    others.close()
    while True:
        matrix = pipe.recv()
        numpy.linalg.svd(matrix[:60, :60])
        pipe.send(numpy.fft.fft2(matrix).real)


def feed(pipe):
    matrix = numpy.random.default_rng(4).random((SIDE, SIDE))
    while True:
        pipe.send(matrix)
        matrix = pipe.recv()
        matrix = matrix / (1 + numpy.abs(matrix).max())


def main():
    context = multiprocessing.get_context("fork")
    ours, its = context.Pipe()
    context.Process(target=worker, args=(its, ours), daemon=True).start()
    for target in (order, pictures):
        threading.Thread(target=target, daemon=True).start()
    threading.Thread(target=feed, args=(ours,), daemon=True).start()
    print("ready", flush=True)
    multiply()


main()
