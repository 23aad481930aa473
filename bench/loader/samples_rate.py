"""Samples per second of trainyard.data.samples(), whose dicts of bytes are Python's:

    samples_rate.py SHARDS_DIR [--threads 2] [--batches 400]

Counted in batches of 32, after a warm-up, as loader_bench --raw and peer_chunks.py --raw.
"""

import argparse
import os
import pathlib
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / os.environ.get("YARD_BUILD_DIR", "build/release") / "python"))
WARM_UP_BATCHES, BATCH = 6, 32


def main():
    from trainyard.data import samples

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shards", type=pathlib.Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batches", type=int, default=400)
    options = parser.parse_args()
    stream = iter(samples(options.shards, shuffle=True, repeat=True, threads=options.threads))
    for _ in range(WARM_UP_BATCHES * BATCH):
        next(stream)
    begin = time.monotonic()
    for _ in range(options.batches):
        batch = [next(stream) for _ in range(BATCH)]
        assert len(batch) == BATCH and batch[0]["jpg"] and batch[0]["txt"]
    print(f"samples {options.batches * BATCH / (time.monotonic() - begin):.1f}")


if __name__ == "__main__":
    main()
