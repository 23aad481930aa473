"""Latency of torch.distributed's Gloo, with the arguments of collectives_bench and its lines."""
import argparse
import statistics
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

SIZES_BYTES = [4 << 10, 64 << 10, 1 << 20, 4 << 20, 64 << 20]


SECONDS = 0.4  # of each operation and size; with more ranks than cores one alone can take tens of milliseconds


def plan_of(size_bytes, operation):
    """How often, and how many back to back: the same on all ranks."""
    for _ in range(2):
        operation()
    begin = time.perf_counter()
    for _ in range(3):
        operation()
    seconds = torch.tensor([(time.perf_counter() - begin) / 3], dtype=torch.float64)
    dist.all_reduce(seconds, dist.ReduceOp.MAX)
    # Small ones back to back: alone, one would find its peers already there or far behind.
    batch = 20 if size_bytes <= 65536 and seconds.item() * 20 < SECONDS / 5 else 1
    return batch, max(5, min(300, int(SECONDS / (seconds.item() * batch))))


def measure(name, size_bytes, data, operation):
    batch, repetitions = plan_of(size_bytes, operation)
    micros = []
    for i in range(-(repetitions // 10) - 1, repetitions):
        data.zero_()  # as gradients are: freshly written by this rank
        dist.barrier()
        begin = time.perf_counter()
        for _ in range(batch):
            operation()
        if i >= 0:
            micros.append((time.perf_counter() - begin) * 1e6 / batch)
    if dist.get_rank() == 0:
        print(f"{name} {size_bytes} private {statistics.median(micros):.1f} {min(micros):.1f}", flush=True)


def run(index, options):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://{options.master}:{options.port}",
                            rank=options.first + index, world_size=options.world)
    for size_bytes in options.sizes or SIZES_BYTES:
        whole = torch.zeros(size_bytes // 4)
        part = torch.zeros(size_bytes // 4 // options.world)
        measure("all_reduce", size_bytes, whole, lambda: dist.all_reduce(whole))
        measure("reduce_scatter", size_bytes, whole, lambda: dist.reduce_scatter_tensor(part, whole))
        measure("all_gather", size_bytes, part, lambda: dist.all_gather_into_tensor(whole, part))
        measure("broadcast", size_bytes, whole, lambda: dist.broadcast(whole, 0))
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--world", type=int, default=2)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--master", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=29542)
    parser.add_argument("--sizes", type=int, nargs="*")
    arguments = parser.parse_args()
    mp.spawn(run, args=(arguments,), nprocs=arguments.count or arguments.world - arguments.first)
