"""Which part of the data this process reads: its rank, and its turn as a worker of a DataLoader."""
from __future__ import annotations

import json
import os
import sys
from typing import Any, NamedTuple

from ..errors import InvalidArgument

# Of a launcher: the rank and the world size. srun alone sets SLURM_STEP_NUM_TASKS; inside a batch
# script, which is one process, only SLURM_NTASKS is set.
_LAUNCHERS = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
)
_LOCAL_SIZES = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_TASKS_PER_NODE")


class Worker(NamedTuple):
    """A worker process of a torch DataLoader."""

    turn: int
    count: int
    tag: int  # the same for all workers of one iteration


def rank_and_world_size(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """As given; else of torch.distributed where it is initialised; else of the launcher's variables:
    torchrun's RANK and WORLD_SIZE, Open MPI's, srun's, SageMaker's hosts; else (0, 1)."""
    if (rank is None) != (world_size is None):
        raise InvalidArgument("rank and world_size go together: give both or none")
    if rank is not None and world_size is not None:
        return rank, world_size
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return _of_environment(os.environ)


def _of_environment(env: Any) -> tuple[int, int]:
    for rank, size in _LAUNCHERS:
        if rank in env and size in env:
            return int(env[rank]), int(env[size])
    if int(env.get("WORLD_SIZE", 1)) > 1:
        raise InvalidArgument(
            f"WORLD_SIZE is {env['WORLD_SIZE']} but there is no RANK: give rank and world_size, or "
            "read the loader after torch.distributed is initialised"
        )
    hosts = json.loads(env.get("SM_HOSTS", "[]"))
    if len(hosts) > 1 and env.get("SM_CURRENT_HOST") in hosts:
        return sorted(hosts).index(env["SM_CURRENT_HOST"]), len(hosts)
    return 0, 1


def worker() -> Worker | None:
    """Of the DataLoader in whose worker process this runs."""
    data = sys.modules.get("torch.utils.data")
    info = data.get_worker_info() if data is not None else None
    if info is None:
        return None
    return Worker(info.id, info.num_workers, (info.seed - info.id) % 0xFFFFFFFF + 1)


def thread_count(worker_count: int) -> int:
    """This process's share of the CPUs that it may use."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    local_size = next((os.environ[n] for n in _LOCAL_SIZES if os.environ.get(n, "").isdigit()), "1")
    return max(1, min(256, cpus // max(1, int(local_size) * worker_count)))
