"""ShardLoader: batches of decoded pictures and their captions."""
from __future__ import annotations

import os
from typing import Any

from .. import _native
from ..errors import InvalidArgument
from . import pinned
from .batch import Batch, of_native, use_torch
from .checks import check_choice, whole_number
from .image import Image
from .stream import Stream
from .urls import Urls


class ShardLoader(Stream):
    """WebDataset shards in, batches out; each `for` over it is an epoch.

    The order depends on the seed and the data alone. Every sample is used once in an epoch over all
    ranks, and the sequence of global batches is the same for any number of ranks and threads, so
    that a run may stop after any batch and go on elsewhere: state_dict(), load_state_dict().
    Threads decode ahead in this process; nothing is left behind when it is killed.

    urls         a path, glob, brace range ("shards-{000000..000099}.tar"), folder, s3:// URL or
                 prefix; a list of them; or {url: weight}, mixed sample by sample. Keys and region of
                 S3 as AWS's tools find them. Shards with an index beside them (yard shards index)
                 open at once; others are read through once at the start.
    batch_size   samples per batch of this rank; or global_batch_size, over all ranks. A run that is
                 to go on with another number of ranks keeps the latter.
    image        see Image.
    captions     the member that is the caption; None: no captions, none needed.
    image_members  the picture is the first of these that a sample has.
    seed         of the order and of every random crop and flip.
    shuffle      False: every epoch in the order of the shards' names.
    filter       which samples are used, by their JSON member `metadata`: 'width >= 512 and (license ==
                 "cc0" or not watermark)'; a.b is a field of an object. All metadata is read at the start.
    rank, world_size  default: torch.distributed's where it is initialised, else those of torchrun,
                 Open MPI, srun or SageMaker, else one rank. Looked up when the reading begins.
    mode         "global": the ranks share each global batch. "independent": rank r reads the shards
                 r, r + world_size, ... by name and no others; epochs of ranks differ in length.
    ends         of an epoch, where samples fill no whole batch: "drop" them, "pad" their batch with
                 others (Batch.mask is False there), or "wrap" around to the epoch's first.
    on_bad       "fail": a sample that cannot be used is an error at its batch. "skip": it is counted
                 and replaced by the one that follows; `quarantine`, a path, lists them as JSON lines.
    repeat       True: one `for` goes through epoch after epoch without end.
    threads      that decode; default: the CPUs over the ranks on this machine.
    prefetch     batches decoded ahead, 1..1024.
    read_ahead_bytes   of encoded samples from a remote store, at most.
    index_bytes  of shard indexes in memory, at most; others are read when they are needed.
    cache_bytes  resized pictures kept in memory over epochs, at most; for small data sets.
    store_patience_s   a store that is away is asked for so many seconds in all; a line in the log tells
                 of that, of a silent one after 15 s.
    output       "auto": torch tensors where torch is imported, else NumPy arrays; "torch", "numpy".
    pin_memory   True: images are decoded into memory that the GPU reads by itself, so that
                 batch.to("cuda", non_blocking=True) goes on behind the program's back. Needs
                 torch; where that sees no GPU memory is plain, and a warning says so. Not in workers
                 of a DataLoader, which has a pin_memory of its own.

    Works as it is in `for`, in Lightning's Trainer.fit(), in Accelerator.prepare(), and as the
    dataset of torch.utils.data.DataLoader(loader, batch_size=None), with workers too. One iteration
    at a time; not to be used from two threads at once.

    Errors: NotFound, InvalidArgument, Corrupt, Unavailable, DeadlineExceeded, Exhausted, with shard,
    offset and sample; the one of a sample comes at its batch, and again at each next().
    """

    def __init__(
        self,
        urls: Urls,
        *,
        batch_size: int | None = None,
        global_batch_size: int | None = None,
        image: Image | None = None,
        captions: str | None = "txt",
        image_members: str = "png,jpg,jpeg,webp",
        seed: int = 0,
        shuffle: bool = True,
        filter: str = "",
        metadata: str = "json",
        rank: int | None = None,
        world_size: int | None = None,
        mode: str = "global",
        ends: str = "drop",
        on_bad: str = "fail",
        quarantine: str | os.PathLike | None = None,
        repeat: bool = False,
        threads: int | None = None,
        prefetch: int = 4,
        read_ahead_bytes: int = 256 << 20,
        index_bytes: int = 1 << 30,
        cache_bytes: int = 0,
        store_patience_s: int = 300,
        output: str = "auto",
        pin_memory: bool = False,
    ) -> None:
        check_choice("mode", mode, ("global", "independent"))
        check_choice("ends", ends, ("drop", "pad", "wrap"))
        check_choice("on_bad", on_bad, ("fail", "skip"))
        check_choice("output", output, ("auto", "torch", "numpy"))
        if quarantine is not None and on_bad != "skip":
            raise InvalidArgument('quarantine goes with on_bad="skip"')
        if image is not None and not isinstance(image, Image):
            raise InvalidArgument(f"image is {type(image).__name__}, not trainyard.data.Image")
        self._image = image or Image()
        self._captions = captions
        self._image_members = image_members
        self._ends = ends
        self._on_bad = on_bad
        self._quarantine = os.fspath(quarantine) if quarantine is not None else ""
        self._prefetch = whole_number("prefetch", prefetch, 1, 1024)
        self._read_ahead_bytes = whole_number("read_ahead_bytes", read_ahead_bytes, 0)
        self._index_bytes = whole_number("index_bytes", index_bytes, 0)
        self._cache_bytes = whole_number("cache_bytes", cache_bytes, 0)
        self._store_patience_s = whole_number("store_patience_s", store_patience_s, 0)
        self._output = output
        if self._image.dtype == "bfloat16" and not use_torch(output):
            raise InvalidArgument("NumPy has no bfloat16: import torch, or take float32")
        if pin_memory and output == "numpy":
            raise InvalidArgument('pin_memory=True gives tensors, not output="numpy"')
        self._pin_memory = pin_memory and pinned.is_possible()
        super().__init__(
            urls,
            batch_size=batch_size,
            global_batch_size=global_batch_size,
            rank=rank,
            world_size=world_size,
            seed=seed,
            shuffle=shuffle,
            mode=mode,
            repeat=repeat,
            threads=threads,
            filter=filter,
            metadata=metadata,
        )

    def _configure(self, options: _native.LoaderOptions) -> None:
        self._image.apply(options)
        options.caption_member = self._captions or ""
        options.image_members = self._image_members
        options.set_ends(self._ends)
        options.set_on_bad(self._on_bad)
        options.quarantine_path = self._quarantine
        options.prefetch_batch_count = self._prefetch
        options.read_ahead_bytes_max = self._read_ahead_bytes
        options.index_bytes_max = self._index_bytes
        options.cache_bytes_max = self._cache_bytes
        options.set_store_patience(self._store_patience_s)
        if self._pin_memory and self._worker is not None:
            raise InvalidArgument("pin_memory=True: not in a worker process; give it to the DataLoader instead")
        if self._pin_memory:
            options.set_allocator(pinned.allocate)

    def _has_buckets(self) -> bool:
        return bool(self._image.buckets)

    def _identity(self) -> dict[str, Any]:
        # Buckets decide which samples share a batch.
        return {**super()._identity(), "buckets": [list(size) for size in self._image.buckets]}

    def _finish(self, native: dict[str, Any]) -> Batch:
        return of_native(native, self._image, self._output)

    @property
    def batch_size(self) -> int:
        """Samples per batch of this rank."""
        _, world_size, global_batch_size = self._world()
        return global_batch_size // world_size
