"""Samples per second of webdataset + Pillow in torch's DataLoader, at the work of loader_bench:

    peer_webdataset.py SHARDS_DIR [SIZE [BATCH [WORKERS [BATCHES]]]] [--draft]

shorter side to SIZE by Pillow's bilinear filter, the middle square, floats in [-1, 1], 3 x SIZE x
SIZE, batches made in the workers. --draft lets Pillow decode at a half or less where the picture
allows it, which webdataset's own decoders do not do but ours does.
"""

import argparse
import io
import pathlib
import time

import numpy as np
import torch
import webdataset
from PIL import Image

WARM_UP_BATCHES = 6


def square(encoded, size, draft):
    image = Image.open(io.BytesIO(encoded))
    if draft:
        scale = size / min(image.size)
        image.draft("RGB", (round(image.width * scale), round(image.height * scale)))
    image = image.convert("RGB")
    if image.width <= image.height:
        wanted = (size, size * image.height // image.width)
    else:
        wanted = (size * image.width // image.height, size)
    image = image.resize(wanted, Image.Resampling.BILINEAR)
    left, top = round((image.width - size) / 2), round((image.height - size) / 2)
    image = image.crop((left, top, left + size, top + size))
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).float().div_(127.5).sub_(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shards", type=pathlib.Path)
    parser.add_argument("numbers", type=int, nargs="*")
    parser.add_argument("--draft", action="store_true")
    arguments = parser.parse_args()
    defaults = [256, 32, 2, 60]
    size, batch, workers, batches = arguments.numbers + defaults[len(arguments.numbers) :]
    paths = sorted(str(p) for p in arguments.shards.glob("*.tar"))
    samples = (
        webdataset.WebDataset(paths, shardshuffle=len(paths), seed=1)
        .repeat()
        .shuffle(256)
        .to_tuple("jpg", "txt", "__key__")
        .map_tuple(lambda encoded: square(encoded, size, arguments.draft), lambda raw: raw.decode())
        .batched(batch, partial=False)
    )
    loader = webdataset.WebLoader(samples, batch_size=None, num_workers=workers, prefetch_factor=2)
    begin = 0.0
    for index, (images, captions, _) in enumerate(loader):
        assert images.shape == (batch, 3, size, size) and len(captions) == batch
        if index + 1 == WARM_UP_BATCHES:
            begin = time.monotonic()
        if index + 1 == WARM_UP_BATCHES + batches:
            break
    print(f"peer {batches * batch / (time.monotonic() - begin):.1f}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
