"""The model of zero_step.cc under PyTorch's FSDP2 over Gloo: step time and memory.

    torchrun --nproc-per-node RANKS peer_fsdp2.py SHARDING STEPS      SHARDING: 2 or 3

Prints "fsdp2 zeroN RANKS median_ms least_ms rank0_mib".
"""

import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import fully_shard

WIDTH, LAYERS, HEADS, VOCABULARY = 256, 8, 8, 2048
BATCH, TOKENS, WARM_UP = 4, 128, 5


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.up = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.down = nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x):
        def heads(y):
            return y.view(*y.shape[:2], HEADS, -1).transpose(1, 2)

        n = self.norm1(x)
        a = F.scaled_dot_product_attention(
            heads(self.q(n)), heads(self.k(n)), heads(self.v(n)), is_causal=True
        )
        h = x + self.o(a.transpose(1, 2).reshape(x.shape))
        return h + self.down(F.gelu(self.up(self.norm2(h))))


class LanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.out = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens):
        h = self.embedding(tokens)
        for block in self.blocks:
            h = block(h)
        return self.out(self.norm(h))


def resident_mib():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:")) / 1024


def main():
    sharding, steps = int(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    before = resident_mib()
    model = LanguageModel()
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (ranks,))
    # ZeRO-2: parameters stay whole from the forward pass to the end of the backward pass.
    for block in model.blocks:
        fully_shard(block, mesh=mesh, reshard_after_forward=sharding == 3)
    fully_shard(model, mesh=mesh, reshard_after_forward=sharding == 3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    numbers = torch.tensor(
        [(i * 7919 + rank * 31) % VOCABULARY for i in range(BATCH * (TOKENS + 1))]
    ).view(BATCH, TOKENS + 1)
    tokens, targets = numbers[:, :-1].contiguous(), numbers[:, 1:].contiguous()
    times = []
    for i in range(WARM_UP + steps):
        start = time.perf_counter()
        optimizer.zero_grad()
        F.cross_entropy(model(tokens).view(-1, VOCABULARY), targets.view(-1)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1e9)
        optimizer.step()
        if i >= WARM_UP:
            times.append(1e3 * (time.perf_counter() - start))
    if rank == 0:
        times.sort()
        print(
            f"fsdp2 zero{sharding} {ranks} {times[len(times) // 2]:.2f} {times[0]:.2f} "
            f"{resident_mib() - before:.1f}",
            flush=True,
        )
    dist.destroy_process_group()


main()
