"""Memory that a GPU reads by itself, for the images of batches."""
from __future__ import annotations

import sys
from typing import Any

from ..errors import InvalidArgument


def check() -> None:
    """InvalidArgument unless torch has a device for which memory can be pinned."""
    torch = sys.modules.get("torch")
    if torch is None:
        raise InvalidArgument("pin_memory=True: import torch first, which pins the memory")
    accelerator = getattr(torch, "accelerator", torch.cuda)
    if not accelerator.is_available():
        raise InvalidArgument("pin_memory=True: torch sees no GPU here; leave it out, or see torch.cuda.is_available()")


def allocate(size_bytes: int) -> tuple[Any, int]:
    """A flat tensor of bytes and where it lies. By torch's allocator, which gives the memory to
    nobody else before the copies that were begun from it have ended."""
    import torch

    pinned = torch.empty(size_bytes, dtype=torch.uint8, pin_memory=True)
    return pinned, pinned.data_ptr()


def as_images(pinned: Any, shape: tuple[int, int, int, int], dtype: str) -> Any:
    """The tensor over memory of allocate() that a batch's images are."""
    import torch

    kind = {"float32": torch.float32, "bfloat16": torch.bfloat16, "uint8": torch.uint8}[dtype]
    count = shape[0] * shape[1] * shape[2] * shape[3] * kind.itemsize
    return pinned[:count].view(kind).view(shape)
