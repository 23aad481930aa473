"""Samples per second of MosaicML Streaming (mds) or LitData (litdata), at the work of loader_bench:

    peer_chunks.py mds|litdata PICTURES_DIR WORK_DIR [--raw] [--workers 2] [--batches 60]

The data set is written to WORK_DIR once, from the pictures' encoded bytes; --batches 0 does only that. Decoding is Pillow's, as
in peer_webdataset.py.
"""

import argparse
import pathlib
import shutil
import sys
import time
import types

import torch
from peer_webdataset import WARM_UP_BATCHES, square

SIZE, BATCH = 256, 32
# Its ready-made sets of pictures want torchvision, whose wheel does not load beside a CPU's torch.
sys.modules["streaming.vision"] = types.ModuleType("streaming.vision")


def samples_of(pictures):
    for path in sorted(pictures.glob("*.jpg")):
        yield {"jpg": path.read_bytes(), "txt": path.with_suffix(".txt").read_text()}


def one_sample(path):
    return {"jpg": pathlib.Path(path).read_bytes(), "txt": pathlib.Path(path).with_suffix(".txt").read_text()}


def write_mds(pictures, out):
    from streaming import MDSWriter

    with MDSWriter(out=str(out), columns={"jpg": "bytes", "txt": "str"}) as writer:
        for sample in samples_of(pictures):
            writer.write(sample)


def write_litdata(pictures, out):
    import litdata

    litdata.optimize(fn=one_sample, inputs=[str(p) for p in sorted(pictures.glob("*.jpg"))],
                     output_dir=str(out), num_workers=1, chunk_bytes="64MB")


def raw(sample):
    return sample["jpg"], sample["txt"]


def decoded(sample):
    return square(sample["jpg"], SIZE, False), sample["txt"]


def loader_of(library, out, transform, workers):
    """A loader of the library's own, its samples given through `transform`."""
    if library == "mds":
        import streaming

        dataset, loader = streaming.StreamingDataset, torch.utils.data.DataLoader
        options = {"local": str(out), "batch_size": BATCH}
    else:
        import litdata

        dataset, loader = litdata.StreamingDataset, litdata.StreamingDataLoader
        options = {"input_dir": str(out)}

    class Transformed(dataset):
        def __getitem__(self, index):
            return transform(super().__getitem__(index))

    # So that workers can be sent it.
    Transformed.__qualname__ = "Transformed"
    globals()["Transformed"] = Transformed
    return loader(Transformed(shuffle=True, **options), batch_size=BATCH, num_workers=workers,
                  drop_last=True, collate_fn=list if transform is raw else None)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", choices=["mds", "litdata"])
    parser.add_argument("pictures", type=pathlib.Path)
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("--raw", action="store_true")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batches", type=int, default=60)
    arguments = parser.parse_args()
    out = arguments.work / arguments.library
    if not out.is_dir():
        part = out.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        {"mds": write_mds, "litdata": write_litdata}[arguments.library](arguments.pictures, part)
        part.rename(out)
    # Reading in the process that wrote ends LitData's workers at their start.
    if arguments.batches == 0:
        return
    transform = raw if arguments.raw else decoded
    loader = loader_of(arguments.library, out, transform, arguments.workers)
    begin, seen = 0.0, 0
    while seen < WARM_UP_BATCHES + arguments.batches:
        for batch in loader:
            seen += 1
            if not arguments.raw:
                assert batch[0].shape == (BATCH, 3, SIZE, SIZE) and len(batch[1]) == BATCH
            if seen == WARM_UP_BATCHES:
                begin = time.monotonic()
            if seen == WARM_UP_BATCHES + arguments.batches:
                break
    print(f"peer {arguments.batches * BATCH / (time.monotonic() - begin):.1f}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
