"""The group of those that live, in torch's books in place of the one that failed."""
from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from .. import _torch
from .address import own_address

_ADDRESS_BYTES = 64


def put_in_place(old: dist.ProcessGroup, backend: Any, ranks: list[int]) -> dist.ProcessGroup:
    """As torch.distributed.shrink_group does after its backend has shrunk; `ranks` are those of `old` that live."""
    store = _new_store(old, backend)
    _torch.use_store(backend, store)
    name, _ = c10d._world.pg_map[old]
    c10d._world.pg_map[old] = (name, store)
    is_default = old == c10d._get_default_group()
    lost = {rank for position, rank in enumerate(dist.get_process_group_ranks(old)) if position not in ranks}
    told = {"process_group": old, "is_default_group": is_default, "pg_options_override": None}
    new = c10d._finalize_shrunk_group(told, lost, backend)
    if is_default:  # torch leaves the old numbers there
        c10d._world.pg_group_ranks[new] = {rank: rank for rank in range(new.size())}
    return new


def _new_store(old: dist.ProcessGroup, backend: Any) -> dist.Store:
    """Served by the new rank 0."""
    where = torch.zeros(_ADDRESS_BYTES + 1, dtype=torch.int32)  # the address, and the port
    store = None
    if backend.rank() == 0:
        address = own_address(c10d._world.pg_map[old][1])
        store = dist.TCPStore(address, 0, is_master=True, wait_for_workers=False)
        where[: len(address)] = torch.tensor(list(address.encode()), dtype=torch.int32)
        where[-1] = store.port
    options = dist.BroadcastOptions()
    options.rootRank = 0
    options.rootTensor = 0
    backend.broadcast([where], options).wait()
    if store is not None:
        return store
    address = bytes(byte for byte in where[:-1].tolist() if byte).decode()
    return dist.TCPStore(address, int(where[-1]), is_master=False, wait_for_workers=False, timeout=timedelta(minutes=5))
