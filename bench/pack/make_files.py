"""Samples to pack: make_files.py OUT_DIR COUNT.

Bytes of the sizes that photographs of 400-640 px have (62 KB on average), not photographs: nothing
that packs them looks inside. A caption and a JSON of metadata beside each. The same everywhere.
"""

import json
import pathlib
import random
import sys


def main():
    out, count = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    out.mkdir(parents=True)
    rng = random.Random(1)
    for i in range(count):
        size = max(8_000, min(200_000, int(rng.gauss(62_000, 20_000))))
        (out / f"{i:06}.jpg").write_bytes(rng.randbytes(size))
        (out / f"{i:06}.txt").write_text(f"a made caption of sample number {i}, of some words\n")
        meta = {"width": 512, "height": 384, "url": f"https://example.com/{i}.jpg", "id": i}
        (out / f"{i:06}.json").write_text(json.dumps(meta))


if __name__ == "__main__":
    main()
