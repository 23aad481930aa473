"""Memory that a GPU reads by itself, for the images of batches."""
from __future__ import annotations

import sys
import warnings
from typing import Any

from ..errors import InvalidArgument


def is_possible() -> bool:
    """Whether torch has a device for which memory can be pinned; where it has none a warning says
    so. InvalidArgument without torch."""
    torch = sys.modules.get("torch")
    if torch is None:
        raise InvalidArgument("pin_memory=True: import torch first, which pins the memory")
    if getattr(torch, "accelerator", torch.cuda).is_available():
        return True
    warnings.warn("pin_memory=True: torch sees no GPU here, so that nothing is pinned", stacklevel=3)
    return False


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
