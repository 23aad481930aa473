"""Our training loop beside plain PyTorch with diffusers: same weights, latents, noise, timesteps.

The random draws are computed anew here, from the description in src/training/tensor/normal.h.
"""

import json
import os
import pathlib
import subprocess

import numpy as np
import pytest
import torch
from diffusers import DDPMScheduler, UNet2DConditionModel

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("YARD_BIN_DIR", ROOT / "build/release/bin"))

SEED, STEPS, BATCH, SAMPLES, TOKENS, SIDE, WIDTH = 3, 25, 4, 10, 5, 8, 16
LEARNING_RATE, WARMUP = 2e-3, 5
NOISE, TIMESTEP, SYNTHETIC_LATENT, SYNTHETIC_TEXT = 1, 2, 8, 9  # tensor::Purpose
DRAW_SALT, STAGE_STREAM = 0x64726177206B6579, 1000
M32, M64 = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF

RECIPE = f"""
seed: {SEED}
data: {{synthetic: {{samples: {SAMPLES}, tokens: {TOKENS}}}}}
model: {{unet: {{from: UNET}}}}
stages:
  - {{name: s, train: denoiser, resolution: {SIDE}, steps: {STEPS}, batch: {BATCH}, micro_batch: 2,
     learning_rate: {LEARNING_RATE}, warmup_steps: {WARMUP}, schedule: cosine}}
optimizer: {{weight_decay: 0.05, clip: 0.5}}
diffusion: {{prediction: PREDICTION, min_snr_gamma: GAMMA}}
"""


def philox(counter, key):
    """Philox4x32-10 (Salmon et al. 2011) on arrays: counter is 4 arrays, key 2 numbers."""
    counter = [np.asarray(word, np.uint64) for word in counter]
    k0, k1 = key
    for _ in range(10):
        a, b = counter[0] * np.uint64(0xD2511F53), counter[2] * np.uint64(0xCD9E8D57)
        counter = [
            (b >> np.uint64(32)) ^ counter[1] ^ np.uint64(k0),
            b & np.uint64(M32),
            (a >> np.uint64(32)) ^ counter[3] ^ np.uint64(k1),
            a & np.uint64(M32),
        ]
        k0, k1 = (k0 + 0x9E3779B9) & M32, (k1 + 0xBB67AE85) & M32
    return counter


def random_u64(seed, stream, index):
    words = philox([index & M32, index >> 32, stream & M32, stream >> 32], (seed & M32, seed >> 32))
    return (int(words[1]) << 32) | int(words[0])


def draw_words(seed, purpose, step, sample, block_count):
    key = random_u64((seed ^ DRAW_SALT) & M64, purpose, step)
    blocks = np.arange(block_count, dtype=np.uint64)
    zeros = np.zeros_like(blocks)
    sample_low = np.full_like(blocks, sample & M32)
    return philox([blocks, zeros, sample_low, zeros], (key & M32, key >> 32))


def normals(seed, purpose, step, samples, shape):
    rows = []
    count = int(np.prod(shape))
    for sample in samples:
        words = draw_words(seed, purpose, step, sample, (count + 3) // 4)
        values = np.empty((len(words[0]), 4), np.float32)
        for pair in range(2):
            u = ((words[2 * pair] >> np.uint64(8)) + np.uint64(1)).astype(np.float64) * 2.0**-24
            angle = (words[2 * pair + 1] >> np.uint64(8)).astype(np.float64) * 2 * np.pi * 2.0**-24
            radius = np.sqrt(-2 * np.log(u))
            values[:, 2 * pair] = radius * np.cos(angle)
            values[:, 2 * pair + 1] = radius * np.sin(angle)
        rows.append(values.reshape(-1)[:count].reshape(shape))
    return torch.from_numpy(np.stack(rows))


def timesteps(step, samples, bound):
    drawn = []
    for sample in samples:
        words = draw_words(SEED, TIMESTEP, step, sample, 1)
        value = (int(words[1][0]) << 32) | int(words[0][0])
        drawn.append(min(int((value >> 11) * 2.0**-53 * bound), bound - 1))
    return torch.tensor(drawn)


def make_unet():
    torch.set_num_threads(1)  # tiny tensors: threads only wait for each other
    torch.manual_seed(0)
    return UNet2DConditionModel(
        sample_size=SIDE,
        block_out_channels=(16, 32),
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        layers_per_block=1,
        norm_num_groups=4,
        cross_attention_dim=WIDTH,
        attention_head_dim=4,
    )


def snr_weights(alphas, gamma, prediction):
    if gamma == 0:
        return torch.ones_like(alphas)
    snr = alphas / (1 - alphas)
    clipped = snr.clamp(max=gamma)
    return clipped / snr if prediction == "epsilon" else clipped / (snr + 1)


def train_in_pytorch(unet, prediction, gamma):
    """The losses of a loop as diffusers' training examples have it."""
    scheduler = DDPMScheduler(
        beta_schedule="scaled_linear", beta_start=0.00085, beta_end=0.012, prediction_type=prediction
    )
    optimizer = torch.optim.AdamW(unet.parameters(), lr=1.0, weight_decay=0.05)
    rate = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: LEARNING_RATE * step / WARMUP
        if step < WARMUP
        else LEARNING_RATE * 0.5 * (1 + np.cos(np.pi * (step - WARMUP) / (STEPS - WARMUP))),
    )
    stage_seed = random_u64(SEED, STAGE_STREAM, 0)
    losses = []
    for step in range(STEPS):
        samples = [(step * BATCH + i) % SAMPLES for i in range(BATCH)]
        latents = normals(stage_seed, SYNTHETIC_LATENT, 0, samples, (4, SIDE, SIDE))
        context = normals(stage_seed, SYNTHETIC_TEXT, 0, samples, (TOKENS, WIDTH))
        noise = normals(SEED, NOISE, step, samples, (4, SIDE, SIDE))
        t = timesteps(step, samples, 1000)
        noisy = scheduler.add_noise(latents, noise, t)
        target = noise if prediction == "epsilon" else scheduler.get_velocity(latents, noise, t)
        output = unet(noisy, t, context).sample
        weights = snr_weights(scheduler.alphas_cumprod[t], gamma, prediction)
        loss = (((output - target) ** 2).mean(dim=(1, 2, 3)) * weights).mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(unet.parameters(), 0.5)
        optimizer.step()
        rate.step()
        losses.append(loss.item())
    return losses


def train_with_yard(folder, prediction, gamma):
    recipe = RECIPE.replace("UNET", str(folder / "unet"))
    (folder / "recipe.yaml").write_text(
        recipe.replace("PREDICTION", prediction).replace("GAMMA", str(gamma))
    )
    beats = folder / "beats.jsonl"
    subprocess.run(
        [BIN / "yard-train", folder / "recipe.yaml", f"output={folder / 'out'}"],
        env={**os.environ, "OMP_NUM_THREADS": "1", "YARD_HEARTBEAT": str(beats)},
        check=True,
        capture_output=True,
        timeout=100,
    )
    lines = [json.loads(line) for line in beats.read_text().splitlines()]
    return [line["loss"] for line in lines if line["event"] == "step"]


@pytest.mark.parametrize(
    "prediction, gamma", [("epsilon", 0), ("epsilon", 5), ("v_prediction", 5)]
)
def test_losses_equal_those_of_pytorch_and_diffusers(tmp_path, prediction, gamma):
    unet = make_unet()
    unet.save_pretrained(tmp_path / "unet")
    ours = train_with_yard(tmp_path, prediction, gamma)
    reference = train_in_pytorch(unet, prediction, gamma)
    assert len(ours) == STEPS
    np.testing.assert_allclose(ours, reference, rtol=1e-4)
    assert ours[-1] != pytest.approx(ours[0], rel=1e-3), "the weights move"
