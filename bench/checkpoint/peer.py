"""The same state saved by safetensors and by torch.distributed.checkpoint.

Usage: peer.py FOLDER ROUNDS. Prints "<name> <seconds> ..." with one value a round.
"""

import os
import pathlib
import shutil
import sys
import time
import warnings

import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file

warnings.filterwarnings("ignore")
TENSOR_COUNT, ROWS, COLUMNS = 125, 1000, 1000


def sync(folder):
    """What the checkpoint promises ours to be: on the disk."""
    for path in [*folder.rglob("*"), folder]:
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)


def emit(name, values):
    print(name, *(f"{value:.5f}" for value in values), flush=True)


def measure_safetensors(state, folder, rounds):
    seconds = []
    for _ in range(rounds):
        begin = time.perf_counter()
        save_file(state, folder / "model.safetensors")
        sync(folder)
        seconds.append(time.perf_counter() - begin)
    emit("safetensors_save", seconds)


def measure_async_save(state, folder, rounds):
    blocked, whole = [], []
    for i in range(rounds + 1):
        begin = time.perf_counter()
        future = dcp.async_save(state, checkpoint_id=str(folder / f"step-{i}"))
        if i > 0:  # the first one starts its machinery
            blocked.append(time.perf_counter() - begin)
        future.result()
        if i > 0:
            whole.append(time.perf_counter() - begin)
        shutil.rmtree(folder / f"step-{i}")
    emit("dcp_blocked", blocked)
    emit("dcp_save", whole)


def main():
    folder, rounds = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    state = {f"layer.{i}.weight": torch.randn(ROWS, COLUMNS) for i in range(TENSOR_COUNT)}
    os.environ.update(MASTER_ADDR="127.0.0.1", RANK="0", WORLD_SIZE="1")
    store = torch.distributed.TCPStore("127.0.0.1", 0, 1, is_master=True)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    measure_safetensors(state, folder, rounds)
    measure_async_save(state, folder, rounds)
    torch.distributed.destroy_process_group()


main()
