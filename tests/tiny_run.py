"""A training run that takes seconds: 48 drawn pictures, models of a few thousand parameters."""

import hashlib
import json
import os
import pathlib
import subprocess

from PIL import Image, ImageDraw

ROOT = pathlib.Path(__file__).resolve().parents[1]
BIN = pathlib.Path(os.environ.get("YARD_BIN_DIR", ROOT / "build/release/bin"))
COLOURS = ["red", "green", "blue", "orange", "purple", "black"]
SHAPES = ["circle", "square", "triangle", "cross"]

RECIPE = """
name: tiny
seed: 7
data: {{shards: {shards}, held_out: 8}}
model:
  autoencoder: {{block_out_channels: [8, 16], down_block_types: [DownEncoderBlock2D, DownEncoderBlock2D],
    up_block_types: [UpDecoderBlock2D, UpDecoderBlock2D], layers_per_block: 1, latent_channels: 4,
    norm_num_groups: 4, sample_size: 16}}
  unet: {{sample_size: 8, in_channels: 4, out_channels: 4, block_out_channels: [16, 32],
    down_block_types: [DownBlock2D, CrossAttnDownBlock2D],
    up_block_types: [CrossAttnUpBlock2D, UpBlock2D], layers_per_block: 1, norm_num_groups: 4,
    cross_attention_dim: 16, attention_head_dim: 4}}
  text_encoder: {{vocab_size: {vocabulary}, hidden_size: 16, intermediate_size: 32,
    num_hidden_layers: 1, num_attention_heads: 2, max_position_embeddings: 16}}
  tokenizer: {tokenizer}
stages:
  - {{name: pixels, train: autoencoder, resolution: 16, steps: 12, batch: 8, learning_rate: 1e-3}}
  - {{name: latents, train: denoiser, resolution: 16, steps: 24, batch: 8, micro_batch: 2, learning_rate: 1e-3}}
checkpoint: {{every_steps: 5}}
evaluation: {{every_steps: 10}}
sampling: {{prompts: [red circle, blue square], steps: 4, every_steps: 10}}
"""


def yard(*arguments, home, **options):
    """Runs `yard`; the caller looks at the exit code."""
    return subprocess.run(
        [str(BIN / "yard"), *map(str, arguments)],
        env={**os.environ, "YARD_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=120,
        **options,
    )


def yard_ok(*arguments, home):
    done = yard(*arguments, home=home)
    assert done.returncode == 0, f"yard {arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def draw(colour, shape):
    picture = Image.new("RGB", (24, 24), "white")
    pen = ImageDraw.Draw(picture)
    if shape == "circle":
        pen.ellipse([4, 4, 20, 20], fill=colour)
    elif shape == "square":
        pen.rectangle([5, 5, 19, 19], fill=colour)
    elif shape == "triangle":
        pen.polygon([(12, 3), (21, 20), (3, 20)], fill=colour)
    else:
        pen.line([4, 4, 20, 20], fill=colour, width=4)
        pen.line([20, 4, 4, 20], fill=colour, width=4)
    return picture


def write_pictures(folder):
    folder.mkdir()
    for i in range(48):
        colour, shape = COLOURS[i % 6], SHAPES[i // 6 % 4]
        draw(colour, shape).save(folder / f"{i:03}.png")
        (folder / f"{i:03}.txt").write_text(f"{colour} {shape}")


def make_recipe(folder):
    """Pictures, shards, tokenizer and recipe in `folder`; the recipe's path."""
    write_pictures(folder / "pictures")
    home = folder / "home"
    yard_ok("shards", "pack", folder / "pictures", folder / "shards", "--size", "64KiB", home=home)
    yard_ok("prep", "tokenizer", folder / "pictures", folder / "tokenizer", home=home)
    vocabulary = len(json.loads((folder / "tokenizer/vocab.json").read_text()))
    recipe = folder / "tiny.yaml"
    recipe.write_text(
        RECIPE.format(
            shards=folder / "shards", tokenizer=folder / "tokenizer", vocabulary=vocabulary
        )
    )
    return recipe


def weights_of(output):
    """Digest of every weights file of the exported pipeline."""
    files = sorted(pathlib.Path(output, "pipeline").rglob("*.safetensors"))
    assert len(files) == 3, files
    return {
        str(path.relative_to(output)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }


def heartbeats(job_dir, rank=0):
    path = pathlib.Path(job_dir, "heartbeats", f"rank-{rank}.jsonl")
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


def losses(job_dir):
    """The loss of each global step; of a step done twice, the last."""
    return {beat["global_step"]: beat["loss"] for beat in heartbeats(job_dir) if beat["event"] == "step"}
