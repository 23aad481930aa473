"""The same work in Python: peer_prep.py FOLDER OUT_DIR, as many processes as cores.

Each process reads, hashes (SHA-256), decodes and pHashes (imagehash) its share of the pictures and packs
picture, caption and json into shards by webdataset's ShardWriter. Prints pictures, wall seconds and CPU
seconds from the moment all processes have imported what they need.
"""
import hashlib
import io
import multiprocessing
import os
import pathlib
import resource
import sys
import time

import imagehash
import webdataset
from PIL import Image


def describe(path):
    content = path.read_bytes()
    image = Image.open(io.BytesIO(content))
    image.load()
    about = {
        "width": image.width,
        "height": image.height,
        "format": image.format,
        "aspect": image.width / image.height,
        "sha256": hashlib.sha256(content).hexdigest(),
        "phash": str(imagehash.phash(image)),
    }
    return {"__key__": path.stem, "jpg": content, "txt": path.with_suffix(".txt").read_text(), "json": about}


def share(number, count, folder, out, ready, cpu):
    paths = sorted(folder.glob("*.jpg"))[number::count]
    describe(paths[0])
    ready.wait()
    start = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    pattern = str(out / f"shard-{number}-%06d.tar")
    with webdataset.ShardWriter(pattern, maxsize=64 << 20, verbose=0) as writer:
        for path in paths:
            writer.write(describe(path))
    cpu.put(sum(resource.getrusage(resource.RUSAGE_SELF)[:2]) - start)


def main():
    folder, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    out.mkdir(parents=True)
    count = len(os.sched_getaffinity(0))
    ready, cpu = multiprocessing.Barrier(count + 1), multiprocessing.Queue()
    processes = [
        multiprocessing.Process(target=share, args=(i, count, folder, out, ready, cpu)) for i in range(count)
    ]
    for process in processes:
        process.start()
    ready.wait()
    start = time.monotonic()
    cpu_seconds = sum(cpu.get() for _ in processes)
    for process in processes:
        process.join()
    print(len(list(folder.glob("*.jpg"))), time.monotonic() - start, cpu_seconds)


main()
