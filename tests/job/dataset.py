"""JPEG files on disk: made once, the same for the same numbers."""

import io
import json
import os
import random

from PIL import Image

# Different pictures; the files are copies of them, so that making thousands takes seconds.
PICTURES = 16


def prepare(folder, count, size, pad_bytes, seed):
    """Makes `folder/train/*.jpg` unless it is there with the same numbers; returns the paths."""
    described = {"count": count, "size": size, "pad_bytes": pad_bytes, "seed": seed, "version": 1}
    note = os.path.join(folder, "dataset.json")
    train = os.path.join(folder, "train")
    paths = [os.path.join(train, f"{i:06}.jpg") for i in range(count)]
    if _read(note) == described:
        return paths
    os.makedirs(train, exist_ok=True)
    source = random.Random(seed)
    pictures = [_picture(source, size) + source.randbytes(pad_bytes) for _ in range(min(PICTURES, count))]
    for i, path in enumerate(paths):
        with open(path, "wb") as file:
            file.write(pictures[i % len(pictures)])
    # Written back now, so that the job meets clean pages and an idle disk.
    os.sync()
    with open(note, "w", encoding="utf-8") as file:
        json.dump(described, file)
    return paths


def _read(note):
    try:
        with open(note, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


def _picture(source, size):
    """Coarse noise with fine noise on top: as hard to decode as a photograph."""
    coarse = Image.frombytes("RGB", (16, 16), source.randbytes(16 * 16 * 3)).resize((size, size), Image.BICUBIC)
    fine = Image.frombytes("RGB", (size, size), source.randbytes(size * size * 3))
    buffer = io.BytesIO()
    Image.blend(coarse, fine, 0.15).save(buffer, "JPEG", quality=90)
    return buffer.getvalue()
