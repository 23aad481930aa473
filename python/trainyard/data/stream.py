"""A stream of batches: where it stands, who reads which part of it, and how it goes on elsewhere.

What ShardLoader and samples() have in common. A position is the next global batch: (epoch, batch).
"""
from __future__ import annotations

import atexit
import hashlib
import os
import sys
import warnings
import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

from .. import _native
from ..errors import InvalidArgument
from . import world
from .checks import whole_number
from .urls import Urls, sources

STATE_VERSION = 1


class Position(NamedTuple):
    epoch: int
    batch: int  # of the next global batch, within the epoch


_open_streams: weakref.WeakSet[Stream] = weakref.WeakSet()
_torch_classes: dict[type, type] = {}


@atexit.register
def _close_all() -> None:
    # Threads must be gone before the libraries under them are.
    for stream in list(_open_streams):
        stream.close()


def _with_torch(cls: type) -> type:
    """`cls` as one that a torch DataLoader takes for an IterableDataset."""
    if cls not in _torch_classes:
        from torch.utils.data import IterableDataset

        if issubclass(cls, IterableDataset):
            return cls
        body = {"__doc__": cls.__doc__, "__module__": cls.__module__, "_plain_class": cls}
        _torch_classes[cls] = type(cls.__name__, (cls, IterableDataset), body)
    return _torch_classes[cls]


def _rebuild(cls: type, attributes: dict[str, Any]) -> Stream:
    stream = cls.__new__(cls)
    stream.__setstate__(attributes)
    return stream


def _names_digest(groups: list[tuple[float, list[str]]]) -> str:
    """Of the shards' names without the folder that all have in common: data may be moved."""
    every = [url for _, urls in groups for url in urls]
    cut = os.path.commonprefix([url.rpartition("/")[0] + "/" for url in every]).rfind("/") + 1
    digest = hashlib.sha256()
    for weight, urls in groups:
        digest.update(f"{weight}\n".encode())
        for url in sorted(urls):
            digest.update(url[cut:].encode("utf-8", "surrogateescape") + b"\n")
    return digest.hexdigest()[:16]


def _batch_size(what: str, value: int | None) -> int | None:
    return None if value is None else whole_number(what, value, 1)


class Stream:
    """Not for direct use."""

    def __new__(cls, *_args: Any, **_kwargs: Any) -> Any:
        return object.__new__(_with_torch(cls) if "torch" in sys.modules else cls)

    def __init__(
        self,
        urls: Urls,
        *,
        batch_size: int | None,
        global_batch_size: int | None,
        rank: int | None,
        world_size: int | None,
        seed: int,
        shuffle: bool,
        mode: str,
        repeat: bool,
        threads: int | None,
        filter: str,
        metadata: str,
    ) -> None:
        if (batch_size is None) == (global_batch_size is None):
            raise InvalidArgument("give one of batch_size and global_batch_size")
        if (rank is None) != (world_size is None):
            raise InvalidArgument("rank and world_size go together: give both or none")
        self._sources = sources(urls)
        self._names = _names_digest(self._sources)
        self._batch_size = _batch_size("batch_size", batch_size)
        self._global_batch_size = _batch_size("global_batch_size", global_batch_size)
        self._rank = rank
        self._world_size = world_size
        self._seed = whole_number("seed", seed, 0, 2**64 - 1)
        self._shuffle = shuffle
        self._mode = mode
        self._repeat = repeat
        self._threads = whole_number("threads", threads, 1, 256) if threads is not None else None
        self._filter = filter
        self._metadata = metadata
        self._next = Position(0, 0)
        self._is_fresh = True  # no batch was given since the epoch was begun or set
        self._epoch_offset = 0  # of set_epoch()
        self._was_loaded = False
        self._loaded_worker: tuple[int, int] | None = None
        self._was_epoch_set = False
        self._was_spawned = False
        self._expected_samples: int | None = None
        self._set_up()

    def _set_up(self) -> None:
        """What belongs to one process."""
        self._shared = _native.SharedEpoch()
        self._loader: _native.Loader | None = None
        self._loader_pid = 0
        self._loader_key: tuple[int, ...] = ()
        self._loader_next = Position(0, 0)
        self._sample_count: int | None = None
        self._turns = (0, 1)  # which turn is ours, of how many
        self._worker: world.Worker | None = None
        self._generation = 0

    def _configure(self, options: _native.LoaderOptions) -> None:
        """Sets the options that a kind of stream has by itself."""
        raise NotImplementedError

    # ---- the native loader

    def _world(self) -> tuple[int, int, int]:
        """Rank, world size and global batch size."""
        rank, world_size = world.rank_and_world_size(self._rank, self._world_size)
        return rank, world_size, self._global_batch_size or (self._batch_size or 0) * world_size

    def _options(self) -> _native.LoaderOptions:
        options = _native.LoaderOptions()
        options.rank, options.world_size, options.global_batch_size = self._world()
        options.turn, options.turn_count = self._turns
        options.seed = self._seed
        options.shuffle = self._shuffle
        options.set_mode(self._mode)
        options.filter = self._filter
        options.metadata_member = self._metadata
        workers = self._worker.count if self._worker else 1
        options.thread_count = self._threads or world.thread_count(workers)
        self._configure(options)
        return options

    def _open(self, position: Position) -> _native.Loader:
        """The native loader, standing at `position`; the one at hand where it does."""
        key = (*self._world(), *self._turns)
        is_ours = self._loader is not None and self._loader_pid == os.getpid()
        if is_ours and key == self._loader_key and position == self._loader_next:
            assert self._loader is not None
            return self._loader
        self.close()
        self._loader = _native.Loader(self._options(), self._sources, *position)
        _open_streams.add(self)
        self._loader_pid = os.getpid()
        self._loader_key = key
        self._loader_next = position
        self._sample_count = self._loader.sample_count
        expected, self._expected_samples = self._expected_samples, None
        if expected not in (None, self._sample_count):
            raise InvalidArgument(
                f"the state is of a data set of {expected} samples; this one has {self._sample_count}"
            )
        return self._loader

    def _any_open(self) -> _native.Loader:
        """The native loader at any position: for what it knows of the data."""
        if self._loader is not None and self._loader_pid == os.getpid():
            return self._loader
        turn, count = self._turns
        batch = self._next.batch
        return self._open(self._next if batch % count == turn else Position(self._next.epoch, turn))

    def close(self) -> None:
        """Ends the threads and gives the memory back; the next iteration goes on where this one is."""
        if self._loader is not None:
            self._loader.close()
            self._loader = None

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_exc: Any) -> None:
        self.close()

    def __len__(self) -> int:
        """Batches in an epoch; TypeError with repeat=True, which has no end."""
        if self._repeat:
            raise TypeError("a loader with repeat=True has no length")
        return self._any_open().batches_per_epoch

    @property
    def sample_count(self) -> int:
        """Samples in the data set; with mode="independent", in this rank's shards."""
        return self._any_open().sample_count

    def report(self) -> dict[str, Any]:
        """What the time went to since the shards were opened: seconds, samples, bytes, skipped
        samples; "text" says in a line what bounds the speed: store, decoding or consumer."""
        return self._any_open().report()

    # ---- iteration

    def _begin(self) -> int:
        """Starts an iteration; the number by which it knows that it is still the last one."""
        self._generation += 1
        if not self._is_fresh and self._next.batch > 0:
            self._to_epoch(self._next.epoch + 1)
        worker = world.worker()
        if worker is None:
            self._turns, self._worker = (0, 1), None
        else:
            self._begin_as_worker(worker)
        return self._generation

    def _begin_as_worker(self, worker: world.Worker) -> None:
        """Workers take turns in handing out the batches, each its own part of the stream."""
        lives_on = self._worker == worker
        epoch, batch = self._next
        if lives_on:
            batch = worker.turn
        elif self._loaded_worker is not None:
            if self._loaded_worker != (worker.turn, worker.count):
                raise InvalidArgument(
                    "the state is of worker {} of {}, this one is worker {} of {}".format(
                        *self._loaded_worker, worker.turn, worker.count
                    )
                )
            # An epoch that has only been reached is claimed with its first batch.
            was_ended = epoch > 0 and batch < worker.count
            self._shared.claim(worker.tag, epoch - 1 if was_ended else epoch)
        else:
            if self._was_spawned and not self._was_epoch_set:
                warnings.warn(
                    "workers that are spawned, not forked, cannot tell epochs apart: call "
                    "set_epoch() before each epoch, or every epoch has the same order",
                    stacklevel=3,
                )
            claimed = self._shared.claim(worker.tag, epoch)
            batch = (batch if claimed == epoch else 0) + worker.turn
            epoch = claimed
        self._loaded_worker = None
        self._worker = worker
        self._turns = (batch % worker.count, worker.count)
        self._next = Position(epoch, batch)

    def _to_epoch(self, epoch: int) -> None:
        first = self._worker.turn if self._worker else 0
        self._turns = (first, self._turns[1])
        self._next = Position(epoch, first)
        self._is_fresh = True

    def _open_turn(self) -> _native.Loader | None:
        """None where the epoch has no batch of our turn."""
        batch = self._next.batch
        if self._loader is not None and self._loader_pid == os.getpid():
            if batch >= self._loader.batches_per_epoch:
                return None
        try:
            return self._open(self._next)
        except InvalidArgument:
            # Few batches, many workers, or a state at the very end of an epoch.
            if batch == 0:
                raise
            turns, self._turns = self._turns, (0, 1)
            try:
                count = self._open(Position(self._next.epoch, 0)).batches_per_epoch
            finally:
                self._turns = turns
            if batch < count:
                raise
            return None

    def _next_batch(self) -> dict[str, Any] | None:
        """The native batch; None at the end of an epoch, which is begun then."""
        loader = self._open_turn()
        if loader is None or self._next.batch >= loader.batches_per_epoch:
            self._to_epoch(self._next.epoch + 1)
            return None
        native = loader.next()
        if self._worker and self._is_fresh:
            self._shared.advance(self._worker.tag, self._next.epoch)
        epoch, batch = self._next
        self._next = Position(epoch, batch + self._turns[1])
        self._is_fresh = False
        turn, count = self._turns
        ended = batch + count >= loader.batches_per_epoch
        self._loader_next = Position(epoch + 1, turn) if ended else self._next
        return native

    def __iter__(self) -> Iterator[Any]:
        """The batches of an epoch: the rest of the one that a state stands in, else of the next one.
        With repeat=True of all epochs, one after the other, without end."""
        return Iteration(self)

    def set_epoch(self, epoch: int) -> None:
        """Says which epoch comes next; not needed, for epochs are counted by themselves.

        After load_state_dict() the state says where the stream stands: the first call then only
        tells by which number the caller knows that epoch, so that frameworks that count from 0
        again change nothing.
        """
        self._was_epoch_set = True
        if self._was_loaded:
            self._was_loaded = False
            self._epoch_offset = self._next.epoch - epoch
            return
        epoch += self._epoch_offset
        if not 0 <= epoch < 2**32:
            raise InvalidArgument(f"epoch {epoch} is not in 0..2^32-1")
        if self._shared.claimed() is None and self._is_fresh and epoch == self._next.epoch:
            return
        self._shared.reset()
        self._to_epoch(epoch)

    # ---- state

    def state_dict(self, after: Any = None) -> dict[str, Any]:
        """Where the stream stands, in a few numbers: behind the batches that were handed out, however
        many were decoded ahead. torchdata's Stateful protocol.

        after: a batch; the state is then that behind it. For a wrapper that fetches ahead by itself,
        as Accelerate's, and for the workers of a DataLoader.
        """
        if after is not None:
            position = Position(int(after["epoch"]), int(after["batch"]) + 1)
        elif self._worker is None and self._shared.claimed() is not None:
            raise InvalidArgument(
                "the workers of a DataLoader read this loader, so that it does not know where they "
                "are: use state_dict(after=batch) or torchdata's StatefulDataLoader"
            )
        else:
            position = self._next
        state: dict[str, Any] = {
            "version": STATE_VERSION,
            "epoch": position.epoch,
            "batch": position.batch,
            "global_batch_size": self._world()[2],
            "sample_count": self._sample_count,
            **self._identity(),
        }
        if after is None and self._worker is not None:
            state["worker"] = [self._worker.turn, self._worker.count]
        return state

    def _identity(self) -> dict[str, Any]:
        """What a stream must have in common with one that goes on from its state."""
        identity: dict[str, Any] = {
            "seed": self._seed,
            "shuffle": self._shuffle,
            "mode": self._mode,
            "shard_count": sum(len(urls) for _, urls in self._sources),
            "shard_names": self._names,
            "filter": self._filter,
        }
        if self._mode == "independent":
            identity["rank"], identity["world_size"], _ = self._world()
        return identity

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The next iteration goes on behind the batches that the state's stream had handed out, also
        with another number of ranks, threads or workers.

        InvalidArgument, saying what differs: a state of another seed, mode or data set, or one that
        stands between two batches of this stream's size.
        """
        if not isinstance(state, dict) or state.get("version") != STATE_VERSION:
            raise InvalidArgument("this is no state of a trainyard stream of this version")
        for name, ours in self._identity().items():
            if state.get(name) != ours:
                raise InvalidArgument(
                    f"the state is of another stream: its {name} is {state.get(name)!r}, here it is {ours!r}"
                )
        known = (self._sample_count, state["sample_count"])
        if None not in known and known[0] != known[1]:
            raise InvalidArgument(
                f"the state is of a data set of {known[1]} samples; this one has {known[0]}"
            )
        worker = world.worker()
        if state.get("worker") is not None and worker is None:
            raise InvalidArgument(
                "the state is that of a DataLoader's worker: load it with torchdata's StatefulDataLoader"
            )
        batch = self._batch_of(state)
        self._shared.reset()
        self._next = Position(int(state["epoch"]), batch)
        self._is_fresh = True
        self._was_loaded = True
        self._worker = None
        self._turns = (0, 1)
        self._loaded_worker = tuple(state["worker"]) if state.get("worker") else None
        self._expected_samples = state["sample_count"]
        self._generation += 1

    def _batch_of(self, state: dict[str, Any]) -> int:
        """The state's batch, counted in batches of our size."""
        ours, theirs = self._world()[2], int(state["global_batch_size"])
        batch = int(state["batch"])
        if ours == theirs or batch == 0:
            return batch
        what = f"the state is of global batches of {theirs} samples, here they have {ours}"
        if len(self._sources) > 1 or self._has_buckets() or state.get("worker"):
            raise InvalidArgument(f"{what}; a mix, buckets and workers need the same")
        if batch * theirs % ours != 0:
            raise InvalidArgument(f"{what}; the state's {batch * theirs} samples are no whole number of them")
        return batch * theirs // ours

    def _has_buckets(self) -> bool:
        return False

    # ---- other processes

    def __getstate__(self) -> dict[str, Any]:
        attributes = dict(self.__dict__)
        for name in ("_shared", "_loader"):
            del attributes[name]
        attributes["_rank"], attributes["_world_size"], _ = self._world()
        attributes["_was_spawned"] = True
        return attributes

    def __setstate__(self, attributes: dict[str, Any]) -> None:
        self._set_up()
        self.__dict__.update(attributes)

    def __reduce__(self) -> Any:
        return (_rebuild, (getattr(type(self), "_plain_class", type(self)), self.__getstate__()))

    def _finish(self, native: dict[str, Any]) -> Any:
        """A native batch as users get it."""
        raise NotImplementedError


class Iteration:
    """Of one epoch; or of all, with repeat=True. A later one over the same stream ends it."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._generation = stream._begin()
        self._is_ended = False

    def __iter__(self) -> Iteration:
        return self

    def __next__(self) -> Any:
        stream = self._stream
        if self._is_ended:
            raise StopIteration
        if stream._generation != self._generation:
            raise RuntimeError("this iteration has ended: another one over the same loader was begun")
        native = stream._next_batch()
        while native is None and stream._repeat:
            native = stream._next_batch()
        if native is None:
            self._is_ended = True
            raise StopIteration
        return stream._finish(native)
