"""Latency of torch.distributed's Gloo, with the arguments of collectives_bench and its lines."""
import argparse
import statistics
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

SIZES_BYTES = [4 << 10, 64 << 10, 1 << 20, 4 << 20, 64 << 20]


def measure(name, size_bytes, data, operation):
    repetitions = max(10, min(300, (1 << 28) // (size_bytes + 65536)))
    # Small ones back to back: alone, one would find its peers already there or far behind.
    batch = 20 if size_bytes <= 65536 else 1
    micros = []
    for i in range(-(repetitions // 10) - 2, repetitions):
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
    for size_bytes in SIZES_BYTES:
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
    arguments = parser.parse_args()
    mp.spawn(run, args=(arguments,), nprocs=arguments.count or arguments.world - arguments.first)
