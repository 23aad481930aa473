"""Latency of torch.distributed's Gloo all_reduce, 2 processes, printed as collective_bench does."""
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

SIZES_BYTES = [4 << 10, 1 << 20, 4 << 20, 64 << 20]


def run(rank: int, rank_count: int, port: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=rank_count)
    for size_bytes in SIZES_BYTES:
        data = torch.zeros(size_bytes // 4)
        repetitions = max(12, min(200, (1 << 29) // (size_bytes + 65536)))
        # Small ones back to back: alone, one would find its peers already there or far behind.
        batch = 50 if size_bytes <= 65536 else 1
        micros = []
        for i in range(-(repetitions // 10) - 2, repetitions):
            data.zero_()  # as gradients are: freshly written by this rank
            dist.barrier()
            begin = time.perf_counter()
            for _ in range(batch):
                dist.all_reduce(data)
            if i >= 0:
                micros.append((time.perf_counter() - begin) * 1e6 / batch)
        if rank == 0:
            print(f"gloo {size_bytes} private {statistics.median(micros):.1f} {min(micros):.1f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    mp.spawn(run, args=(count, 29542), nprocs=count)
