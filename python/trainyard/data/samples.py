"""Samples as dicts of bytes, as the webdataset library gives them."""
from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from .. import _native
from ..errors import InvalidArgument
from .checks import check_choice, whole_number
from .stream import Iteration, Stream
from .urls import Urls

_SAMPLES_PER_BATCH = 16


class SampleStream(Stream):
    """What samples() gives."""

    def __init__(
        self,
        urls: Urls,
        *,
        on_bad: str,
        quarantine: str | os.PathLike | None,
        read_ahead_bytes: int,
        store_patience_s: int,
        **common: Any,
    ) -> None:
        check_choice("mode", common["mode"], ("global", "independent"))
        check_choice("on_bad", on_bad, ("fail", "skip"))
        if quarantine is not None and on_bad != "skip":
            raise InvalidArgument('quarantine goes with on_bad="skip"')
        self._on_bad = on_bad
        self._quarantine = os.fspath(quarantine) if quarantine is not None else ""
        self._read_ahead_bytes = whole_number("read_ahead_bytes", read_ahead_bytes, 0)
        self._store_patience_s = whole_number("store_patience_s", store_patience_s, 0)
        self._given: tuple[int, int, int] | None = None  # epoch, batch and how many of its samples
        self._skip_count = 0
        super().__init__(urls, batch_size=_SAMPLES_PER_BATCH, global_batch_size=None, **common)

    def _configure(self, options: _native.LoaderOptions) -> None:
        options.raw = True
        options.set_ends("pad")  # what is padded is left out again
        options.set_on_bad(self._on_bad)
        options.quarantine_path = self._quarantine
        options.read_ahead_bytes_max = self._read_ahead_bytes
        options.set_store_patience(self._store_patience_s)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self._given = None
        return _SampleIteration(self)

    def __len__(self) -> int:
        """TypeError: how many samples this process gets depends on ranks and workers."""
        raise TypeError("the samples of one process are not counted; see sample_count")

    def _finish(self, native: dict[str, Any]) -> dict[str, Any]:
        return native

    def state_dict(self, after: Any = None) -> dict[str, Any]:
        """Where the stream stands: behind the samples that were handed out."""
        if after is not None:
            raise InvalidArgument("a sample does not say where it is: state_dict() without it")
        state = super().state_dict()
        state["world_size"] = self._world()[1]
        state["samples_given"] = self._skip_count
        if self._given is not None:
            state["epoch"], state["batch"], state["samples_given"] = self._given
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The next iteration goes on behind the sample that was handed out last, with the same number
        of ranks. InvalidArgument, saying what differs, otherwise."""
        ours = self._world()[1]
        if isinstance(state, dict) and state.get("world_size") != ours:
            raise InvalidArgument(
                f"the state is of a world of {state.get('world_size')} ranks, here there are {ours}"
            )
        super().load_state_dict(state)
        self._given = None
        self._skip_count = int(state["samples_given"])


class _SampleIteration:
    def __init__(self, stream: SampleStream) -> None:
        self._stream = stream
        self._batches = Iteration(stream)
        self._samples: Iterator[tuple[int, dict[str, Any]]] = iter(())

    def __iter__(self) -> _SampleIteration:
        return self

    def __next__(self) -> dict[str, Any]:
        stream = self._stream
        while True:
            for number, sample in self._samples:
                epoch, batch, _ = stream._given or (0, 0, 0)
                stream._given = (epoch, batch, number + 1)
                return sample
            stream._given = None
            native = next(self._batches)
            mask = native["mask"]
            whole = [(i, s) for i, s in enumerate(native["samples"]) if mask[i]]
            skip, stream._skip_count = stream._skip_count, 0
            self._samples = iter([(i, s) for i, s in whole if i >= skip])
            stream._given = (native["epoch"], native["batch"], skip)


def samples(
    urls: Urls,
    *,
    shuffle: bool = False,
    seed: int = 0,
    filter: str = "",
    metadata: str = "json",
    rank: int | None = None,
    world_size: int | None = None,
    mode: str = "global",
    on_bad: str = "fail",
    quarantine: str | os.PathLike | None = None,
    repeat: bool = False,
    threads: int | None = None,
    read_ahead_bytes: int = 256 << 20,
    store_patience_s: int = 300,
) -> SampleStream:
    """Samples as dicts of bytes: {"__key__": "0001", "__url__": ".../a.tar", "jpg": b"...", ...}.

    In the form of the webdataset library, so that its decoding goes on from here:

        wds.DataPipeline(trainyard.data.samples(urls), wds.decode("pil"), wds.to_tuple("jpg", "txt"))

    Each `for` over it is an epoch, in which every sample comes once over all ranks and all workers
    of a DataLoader. Checksums are verified. shuffle=False: in the order of the shards' names and of
    the samples in them; True: anew for each epoch, by the seed. Extensions are in lower case. The
    other arguments, the errors and state_dict()/load_state_dict() are as ShardLoader's.
    """
    return SampleStream(
        urls,
        shuffle=shuffle,
        seed=seed,
        filter=filter,
        metadata=metadata,
        rank=rank,
        world_size=world_size,
        mode=mode,
        on_bad=on_bad,
        quarantine=quarantine,
        repeat=repeat,
        threads=threads,
        read_ahead_bytes=read_ahead_bytes,
        store_patience_s=store_patience_s,
    )
