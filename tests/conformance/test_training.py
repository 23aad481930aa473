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
NOISE, TIMESTEP, SYNTHETIC_LATENT, SYNTHETIC_TEXT, NOISE_OFFSET = 1, 2, 8, 9, 10  # tensor::Purpose
DRAW_SALT, STAGE_STREAM = 0x64726177206B6579, 1000
M32, M64 = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF

RECIPE = f"""
seed: {SEED}
data: {{synthetic: {{samples: {SAMPLES}, tokens: {TOKENS}}}}}
model: {{unet: {{from: UNET}}}}
stages:
  - {{name: s, train: denoiser, resolution: {SIDE}, steps: STEP_COUNT, batch: {BATCH}, micro_batch: MICRO,
     learning_rate: {LEARNING_RATE}, warmup_steps: {WARMUP}, schedule: cosine}}
optimizer: OPTIMIZER
diffusion: DIFFUSION
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


def timesteps(step, samples, bound, case):
    drawn = []
    for sample in samples:
        if case.get("timestep_sampling") == "logit_normal":
            logit = normals(SEED, TIMESTEP, step, [sample], (1,)).double().item()
            u = 1 / (1 + np.exp(-logit))
        else:
            words = draw_words(SEED, TIMESTEP, step, sample, 1)
            value = (int(words[1][0]) << 32) | int(words[0][0])
            u = (value >> 11) * 2.0**-53
        drawn.append(min(int(u * bound), bound - 1))
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


def snr_weights(alphas, case):
    """As Hang et al. 2023 and Choi et al. 2022 have them; where the SNR is 0, their limits."""
    snr = alphas / (1 - alphas)
    if "p2_gamma" in case:
        return (1 + snr) ** -case["p2_gamma"]
    if "min_snr_gamma" not in case:
        return torch.ones_like(alphas)
    clipped = snr.clamp(max=case["min_snr_gamma"])
    if case["prediction"] == "sample":
        return clipped
    if case["prediction"] == "v_prediction":
        return clipped / (snr + 1)
    return torch.where(snr == 0, torch.ones_like(snr), clipped / snr)


def noisy_and_target(scheduler, latents, noise, t, case):
    if case["prediction"] == "flow_prediction":
        shift = case.get("flow_shift", 1)
        sigma = (t + 1).double() / 1000
        sigma = (shift * sigma / (1 + (shift - 1) * sigma)).float()
        wide = sigma[:, None, None, None]
        return (1 - wide) * latents + wide * noise, noise - latents, sigma * 1000
    noisy = scheduler.add_noise(latents, noise, t)
    target = {"epsilon": noise, "sample": latents}.get(case["prediction"])
    if target is None:
        target = scheduler.get_velocity(latents, noise, t)
    return noisy, target, t


def make_optimizer(unet, settings):
    if settings.get("kind") == "sgd":
        return torch.optim.SGD(unet.parameters(), lr=1.0, momentum=0.9, nesterov=True, weight_decay=0.05)
    return torch.optim.AdamW(unet.parameters(), lr=1.0, weight_decay=0.05)


def train_in_pytorch(unet, case, optimizer_settings, steps):
    """The losses of a loop as diffusers' training examples have it."""
    vp = case["prediction"] != "flow_prediction"
    scheduler = DDPMScheduler(
        beta_schedule="scaled_linear",
        beta_start=0.00085,
        beta_end=0.012,
        prediction_type=case["prediction"] if vp else "epsilon",
        rescale_betas_zero_snr=case.get("zero_terminal_snr", False),
    )
    optimizer = make_optimizer(unet, optimizer_settings)
    rate = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: LEARNING_RATE * step / WARMUP
        if step < WARMUP
        else LEARNING_RATE * 0.5 * (1 + np.cos(np.pi * (step - WARMUP) / (steps - WARMUP))),
    )
    stage_seed = random_u64(SEED, STAGE_STREAM, 0)
    losses = []
    for step in range(steps):
        samples = [(step * BATCH + i) % SAMPLES for i in range(BATCH)]
        latents = normals(stage_seed, SYNTHETIC_LATENT, 0, samples, (4, SIDE, SIDE))
        context = normals(stage_seed, SYNTHETIC_TEXT, 0, samples, (TOKENS, WIDTH))
        noise = normals(SEED, NOISE, step, samples, (4, SIDE, SIDE))
        offset = normals(SEED, NOISE_OFFSET, step, samples, (4, 1, 1))
        noise = noise + case.get("noise_offset", 0) * offset
        t = timesteps(step, samples, 1000, case)
        noisy, target, condition = noisy_and_target(scheduler, latents, noise, t, case)
        output = unet(noisy, condition, context).sample
        weights = snr_weights(scheduler.alphas_cumprod[t], case) if vp else torch.ones(BATCH)
        loss = (((output - target) ** 2).mean(dim=(1, 2, 3)) * weights).mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(unet.parameters(), 0.5)
        optimizer.step()
        rate.step()
        losses.append(loss.item())
    return losses


def train_with_yard(folder, case, optimizer_settings, steps, micro_batch):
    recipe = RECIPE.replace("UNET", str(folder / "unet")).replace("STEP_COUNT", str(steps))
    recipe = recipe.replace("MICRO", str(micro_batch)).replace("DIFFUSION", json.dumps(case))
    recipe = recipe.replace("OPTIMIZER", json.dumps({"weight_decay": 0.05, "clip": 0.5, **optimizer_settings}))
    (folder / "recipe.yaml").write_text(recipe)
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


def check(folder, case, optimizer_settings, steps, micro_batch):
    unet = make_unet()
    unet.save_pretrained(folder / "unet")
    ours = train_with_yard(folder, case, optimizer_settings, steps, micro_batch)
    reference = train_in_pytorch(unet, case, optimizer_settings, steps)
    assert len(ours) == steps
    np.testing.assert_allclose(ours, reference, rtol=1e-4)
    assert ours[-1] != pytest.approx(ours[0], rel=1e-3), "the weights move"


@pytest.mark.parametrize(
    "case",
    [
        {"prediction": "epsilon", "min_snr_gamma": 5},
        {"prediction": "v_prediction", "min_snr_gamma": 5, "noise_offset": 0.1},
        {"prediction": "v_prediction", "zero_terminal_snr": True, "min_snr_gamma": 5},
        {"prediction": "sample", "min_snr_gamma": 5, "zero_terminal_snr": True},
        {"prediction": "epsilon", "p2_gamma": 1, "timestep_sampling": "logit_normal"},
        {"prediction": "flow_prediction", "flow_shift": 3, "timestep_sampling": "logit_normal"},
    ],
    ids=lambda case: "-".join(map(str, case.values())),
)
def test_losses_equal_those_of_pytorch_and_diffusers(tmp_path, case):
    check(tmp_path, case, {}, STEPS, micro_batch=3)  # the last micro-batch has one sample


def test_a_hundred_steps_equal_those_of_pytorch(tmp_path):
    check(tmp_path, {"prediction": "epsilon"}, {}, 100, micro_batch=2)


def test_steps_of_sgd_equal_those_of_pytorch(tmp_path):
    settings = {"kind": "sgd", "momentum": 0.9, "nesterov": True}
    check(tmp_path, {"prediction": "epsilon"}, settings, STEPS, micro_batch=4)
