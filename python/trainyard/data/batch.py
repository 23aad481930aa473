"""What a ShardLoader yields."""
from __future__ import annotations

import sys
from typing import Any

import numpy

from . import pinned
from .image import Image


class Batch(dict):
    """A dict of:

    images              (batch, 3, height, width), or (batch, height, width, 3), of Image.dtype. The
                        loader's own memory, not a copy: it goes back to the loader when the last
                        array or tensor over it dies.
    captions            list of str; empty with captions=None.
    keys                list of str, "<url of the shard>/<key of the sample>".
    sample_ids          int64 (batch,): number in the data set, the same on every rank.
    mask                bool (batch,): False where ends="pad" filled up; to be left out of losses.
    epoch, batch        int: where in the stream this is; batch counts global batches in the epoch.
    first_sample_number int: of the global batch, counted over all epochs.

    All but `keys`, which every dict has of its own, can be read as attributes, too: batch.images,
    batch["keys"]. Arrays are torch tensors where torch is
    imported (or output="torch"), else NumPy's.
    """

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"a batch has no '{name}'; it has {', '.join(self)}") from None

    def to(self, device: Any, non_blocking: bool = False) -> Batch:
        """The batch with its tensors on another device."""
        return Batch(
            (name, value.to(device, non_blocking=non_blocking) if hasattr(value, "to") else value)
            for name, value in self.items()
        )

    def __reduce__(self) -> Any:
        return (Batch, (dict(self),))


def use_torch(output: str) -> bool:
    """Whether tensors are wanted: output is "auto", "torch" or "numpy"."""
    return output == "torch" or (output == "auto" and "torch" in sys.modules)


def of_native(native: dict[str, Any], image: Image, output: str) -> Batch:
    batch = Batch(native)
    width, height = batch.pop("image_size")
    batch["mask"] = native["mask"].view(numpy.bool_)
    if use_torch(output):
        import torch

        for name in ("images", "sample_ids", "mask"):
            if isinstance(batch[name], numpy.ndarray):
                batch[name] = torch.from_numpy(batch[name])
        if batch["images"].dim() == 1:  # pinned
            sides = (3, height, width) if image.layout == "NCHW" else (height, width, 3)
            batch["images"] = pinned.as_images(batch["images"], (len(batch["mask"]), *sides), image.dtype)
        elif image.dtype == "bfloat16":
            batch["images"] = batch["images"].view(torch.bfloat16)
    return batch
