"""torch.distributed over trainyard's collectives: the backend "yard".

    import torch.distributed as dist
    import trainyard.distributed

    dist.init_process_group("yard")                   # CPU tensors
    dist.init_process_group("cpu:yard,cuda:nccl")     # and CUDA tensors by NCCL

Importing this is all there is to do; DDP, FSDP, DTensor, torch.distributed.checkpoint and Accelerate
then use it through torch.distributed. Failures are torch.distributed.DistBackendError and name the rank
and the host: a process that died (told at once, on all ranks), ranks that called different operations
(both are named), a time-out. docs/distributed.md has the rest.
"""
from __future__ import annotations

import atexit
import os
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from .accelerate import keep_the_named_backend
from .address import own_address
from .hooks import compress_to_bf16
from .survivors import put_in_place

try:
    from .. import _torch
except ImportError as error:
    raise ImportError(
        f"trainyard was built without torch, or for another one than torch {torch.__version__}: "
        f"docs/distributed.md says how to build it ({error})"
    ) from error

__all__ = ["BACKEND", "compress_to_bf16", "flight", "monitored_barrier", "shrink"]

BACKEND = "yard"


def _check_torch() -> None:
    """torch promises nothing between the binaries of two releases."""
    installed = torch.__version__.split("+")[0].split(".")[:2]
    if installed != _torch.torch_version.split(".")[:2]:
        raise ImportError(
            f"trainyard was built for torch {_torch.torch_version}, this is torch {torch.__version__}: "
            "build it again, docs/distributed.md says how"
        )


def _let_ddp_allocate_its_buckets() -> None:
    """DDP asks the backend for the memory of its buckets only where this says so, and then asks NCCL too, which is
    not for us to decide."""
    if not torch.cuda.is_available():
        os.environ.setdefault("DDP_DISABLE_COMM_MEM", "0")


def _restart_count() -> int:
    """How often torchrun has started the ranks again."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))


def _flight_path(options: Any) -> str:
    """Where `yard flight` looks; of the job's whole group alone."""
    folder = os.environ.get("TRAINYARD_FLIGHT_DIR") or os.environ.get("YARD_JOB_DIR")
    if not folder or options.global_ranks_in_group:
        return ""
    os.makedirs(f"{folder}/flight", exist_ok=True)
    return f"{folder}/flight/rank-{options.group_rank}.flight"


def _bf16_between_hosts() -> bool:
    wire = os.environ.get("TRAINYARD_WIRE", "exact")
    if wire not in ("exact", "bf16"):
        raise ValueError(f"TRAINYARD_WIRE={wire}: exact or bf16")
    return wire == "bf16"


def _streams_between_hosts() -> int:
    text = os.environ.get("TRAINYARD_STREAMS", "0")
    if not (text.isdecimal() and int(text) <= 16):
        raise ValueError(f"TRAINYARD_STREAMS={text}: 1 to 16 connections, or 0 to measure what is best")
    return int(text)


def _create_backend(options: Any, backend_options: Any) -> Any:
    """What torch calls for each process group, on each of its ranks."""
    if backend_options is not None:
        raise ValueError("the backend yard has no pg_options")
    is_leader = options.group_rank == 0
    return _torch.create_backend(
        store=options.store,
        rank=options.group_rank,
        size=options.group_size,
        timeout=options.timeout,
        address=own_address(options.store) if is_leader else "127.0.0.1",
        generation=_restart_count(),
        group_name=options.group_id,
        global_ranks=list(options.global_ranks_in_group),
        host_identity=os.environ.get("TRAINYARD_HOST_IDENTITY", ""),
        flight_path=_flight_path(options),
        bf16_between_hosts=_bf16_between_hosts(),
        tls_key_file=os.environ.get("TRAINYARD_TLS_KEY_FILE", ""),
        streams_between_hosts=_streams_between_hosts(),
    )


def monitored_barrier(
    group: dist.ProcessGroup | None = None, timeout: timedelta | None = None, wait_all_ranks: bool = False
) -> None:
    """torch.distributed.monitored_barrier, which torch itself gives to Gloo alone.

    Returns when all ranks of the group have called it. Ranks that have not come within `timeout` (that of
    the group when None) are named by DistBackendError on all others: the first of them, or each with
    `wait_all_ranks`. Goes over the group's store, so that it works whatever state the group is in.
    """
    if group is dist.GroupMember.NON_GROUP_MEMBER:
        return
    options = {} if timeout is None else {"timeout": timeout}
    _backend_of(group).monitored_barrier(wait_all_ranks=wait_all_ranks, **options)


def flight(group: dist.ProcessGroup | None = None) -> list[dict[str, Any]]:
    """The last operations of this rank in the group, at most 512, oldest first: what was called, when, how long
    it took and which rank it waits for, or waited for at its end. Callable from any thread, also while
    operations hang.

    Each is a dict: call ("all_reduce #12 (f32, sum, 4096 bytes)"), issued_unix_us, started_after_us and
    ended_after_us (since it was issued; -1: not yet), waited_rank (of the group; -1: none), error.
    """
    return _torch.flight_of(_backend_of(group))


def shrink(
    group: dist.ProcessGroup | None = None, *, without: Sequence[int] = (), timeout: timedelta = timedelta(seconds=10)
) -> dist.ProcessGroup:
    """After a failure: a group of the ranks that live, in their order, in the same processes.

    Called by each of them, within `timeout` of each other; ranks whose process has ended are missed at once, and
    those in `without` (ranks of the group, the same on all that call) are not waited for. Who neither comes nor is
    known to be dead when the time is over is left behind if the others are more than they (or as many, with the
    lowest rank): no two groups can come out of one.

    Returns the smaller group. Shrinking the default group makes it the default group and destroys all others,
    since every rank has a new number then. It has a store of its own, for the old one may have died with its
    process. DistBackendError: too few are left, or this rank was left out.
    """
    old = group if group is not None else dist.distributed_c10d._get_default_group()
    backend, ranks = _torch.shrink(_backend_of(old), list(without), timeout)
    return put_in_place(old, backend, ranks)


def _backend_of(group: dist.ProcessGroup | None) -> Any:
    if group is None:
        group = dist.distributed_c10d._get_default_group()
    backend = group._get_backend(torch.device("cpu"))
    if backend.name() != BACKEND:
        raise ValueError(f"the group's backend for CPU tensors is {backend.name()}, not {BACKEND}")
    return backend


_check_torch()
_let_ddp_allocate_its_buckets()
dist.Backend.register_backend(BACKEND, _create_backend, extended_api=True, devices=["cpu"])
atexit.register(_torch.close_backends)
keep_the_named_backend()
