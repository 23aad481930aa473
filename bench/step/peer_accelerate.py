"""One training step of a small latent-diffusion UNet with diffusers and accelerate, the peer of ours.

Run by torchrun; every rank trains on the same synthetic latents that our side uses. Rank 0 prints
one JSON line. `accelerate launch --cpu` may start a single process without a word, so the world
size is checked.
"""

import argparse
import json
import statistics
import sys
import time

import torch
from accelerate import Accelerator
from diffusers import DDPMScheduler, UNet2DConditionModel


def make_unet():
    return UNet2DConditionModel(
        sample_size=32,
        in_channels=4,
        out_channels=4,
        block_out_channels=(64, 128, 256),
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
        layers_per_block=1,
        cross_attention_dim=256,
        attention_head_dim=8,
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--precision", choices=["f32", "bf16"], required=True)
    parser.add_argument("--batch-per-rank", type=int, default=4)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--warm-up", type=int, default=4)
    parser.add_argument("--steps", type=int, default=12)
    arguments = parser.parse_args()

    torch.manual_seed(0)
    accelerator = Accelerator(
        cpu=True, mixed_precision="bf16" if arguments.precision == "bf16" else "no"
    )
    if accelerator.num_processes != arguments.ranks:
        sys.exit(f"wanted {arguments.ranks} ranks, accelerate made {accelerator.num_processes}")
    unet = make_unet()
    parameter_count = sum(p.numel() for p in unet.parameters())
    # The fused AdamW is the fastest of torch's on a CPU: the peer gets it too.
    optimizer = torch.optim.AdamW(unet.parameters(), lr=1e-4, fused=True)
    unet, optimizer = accelerator.prepare(unet, optimizer)
    scheduler = DDPMScheduler(num_train_timesteps=1000)

    latents = torch.randn(arguments.batch_per_rank, 4, 32, 32)
    text = torch.randn(arguments.batch_per_rank, 77, 256)
    step_ms = []
    for step in range(arguments.warm_up + arguments.steps):
        begin = time.perf_counter()
        noise = torch.randn_like(latents)
        timesteps = torch.randint(0, 1000, (arguments.batch_per_rank,))
        noisy = scheduler.add_noise(latents, noise, timesteps)
        predicted = unet(noisy, timesteps, encoder_hidden_states=text).sample
        loss = torch.nn.functional.mse_loss(predicted.float(), noise)
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(unet.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        loss.item()
        if step >= arguments.warm_up:
            step_ms.append(1000 * (time.perf_counter() - begin))
    if accelerator.is_main_process:
        print(
            json.dumps(
                {
                    "parameters": parameter_count,
                    "world_size": accelerator.num_processes,
                    "threads": torch.get_num_threads(),
                    "median_ms": round(statistics.median(step_ms), 1),
                    "best_ms": round(min(step_ms), 1),
                }
            ),
            flush=True,
        )
    accelerator.end_training()


if __name__ == "__main__":
    main()
