"""Synthesised JPEGs of 400-640 px with captions: make_corpus.py OUT_DIR COUNT.

No package that we install ships enough photographs, so these are made: noise of six octaves, as
smooth as a photograph's surfaces, flat shapes with hard edges over it, and a little grain; about
the bytes per pixel of a photograph at quality 90. The same on every machine.
"""

import pathlib
import sys

import numpy as np
from PIL import Image, ImageDraw


def picture(seed):
    rng = np.random.default_rng(seed)
    width, height = (int(v) for v in rng.integers(400, 641, 2))
    levels = np.zeros((height, width, 3), np.float32)
    for octave in range(6):
        cells = rng.random((2 << octave, 2 << octave, 3), np.float32)
        for channel in range(3):
            layer = Image.fromarray(cells[..., channel]).resize((width, height), Image.Resampling.BICUBIC)
            levels[..., channel] += np.asarray(layer) / (1 << octave)
    levels = 255 * (levels - levels.min()) / (levels.max() - levels.min())
    image = Image.fromarray(levels.astype(np.uint8))
    draw = ImageDraw.Draw(image)
    for _ in range(int(rng.integers(2, 9))):
        x, y = (int(v) for v in rng.integers(0, 500, 2))
        w, h = (int(v) for v in rng.integers(20, 200, 2))
        colour = tuple(int(v) for v in rng.integers(0, 256, 3))
        (draw.ellipse if rng.random() < 0.5 else draw.rectangle)((x, y, x + w, y + h), fill=colour)
    grain = rng.normal(0, 4, (height, width, 1)).astype(np.float32)
    return Image.fromarray(np.clip(np.asarray(image) + grain, 0, 255).astype(np.uint8))


def main():
    out, count = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    out.mkdir(parents=True)
    for i in range(count):
        picture(i).save(out / f"{i:05}.jpg", quality=90)
        (out / f"{i:05}.txt").write_text(f"made picture number {i}\n")


if __name__ == "__main__":
    main()
