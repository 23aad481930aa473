"""A DDP script as anybody writes it: torchrun train.py BACKEND f32|bf16 STEPS. Rank 0 prints JSON.

Each step with its gradients reduced is followed by one without (DDP's no_sync), so that what communication
adds to a step is the difference of the two, whatever of it is hidden behind the backward pass, and whatever
else the machine does meanwhile.
"""

import json
import statistics
import sys
import time

import torch
import torch.distributed as dist
from diffusers import UNet2DConditionModel
from torch.nn.parallel import DistributedDataParallel

import trainyard.distributed  # noqa: F401

WARM_UP, BATCH = 2, 4


def make_unet():
    """The network of bench/step."""
    return UNet2DConditionModel(
        sample_size=32, in_channels=4, out_channels=4, block_out_channels=(64, 128, 256),
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
        layers_per_block=1, cross_attention_dim=256, attention_head_dim=8,
    )


def step(model, optimizer, inputs, precision):
    begin = time.perf_counter()
    optimizer.zero_grad(set_to_none=False)
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
        loss = model(*inputs).sample.square().mean()
    loss.backward()
    optimizer.step()
    return 1e3 * (time.perf_counter() - begin)


def main():
    backend, precision, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
    torch.set_num_threads(1)
    dist.init_process_group(backend)
    torch.manual_seed(0)
    model = DistributedDataParallel(make_unet())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    inputs = (torch.randn(BATCH, 4, 32, 32), torch.randint(0, 1000, (BATCH,)), torch.randn(BATCH, 77, 256))
    with_ms, without_ms = [], []
    for _ in range(WARM_UP + steps):
        dist.barrier()
        with_ms.append(step(model, optimizer, inputs, precision))
        dist.barrier()
        with model.no_sync():
            without_ms.append(step(model, optimizer, inputs, precision))
    if dist.get_rank() == 0:
        added_ms = [a - b for a, b in zip(with_ms, without_ms)][WARM_UP:]
        print(json.dumps({"backend": dist.get_backend(), "with_ms": statistics.median(with_ms[WARM_UP:]),
                          "added_ms": statistics.median(added_ms),
                          "megabytes": 4e-6 * sum(p.numel() for p in model.parameters())}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
