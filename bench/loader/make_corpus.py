"""JPEGs of 400-640 px out of real photographs, with captions: make_corpus.py OUT_DIR COUNT."""

import pathlib
import random
import sys

from PIL import Image

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "bench/pictures")]
import photos  # noqa: E402
from make_jpegs import cut  # noqa: E402


def main():
    out, count = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    out.mkdir(parents=True)
    images = [Image.open(path).convert("RGB") for path in photos.fetch()]
    draw = random.Random(1)
    for i in range(count):
        cut(images[i % len(images)], draw).save(out / f"{i:05}.jpg", quality=90)
        (out / f"{i:05}.txt").write_text(f"photograph number {i}\n")


if __name__ == "__main__":
    main()
