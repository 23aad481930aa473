"""What yard-train leaves, beside diffusers: pipelines of each class open, `yard sample` makes pictures of them, and
`yard prep latents` writes the latents that diffusers' autoencoder gives."""

import io
import json
import os
import pathlib
import subprocess
import tarfile

import numpy as np
import pytest
import torch
from diffusers import AutoencoderKL, DiffusionPipeline
from PIL import Image

import tiny_run
from tiny_run import BIN

XL = """model.unet={sample_size: 8, in_channels: 4, out_channels: 4, block_out_channels: [16, 32],
  down_block_types: [DownBlock2D, CrossAttnDownBlock2D], up_block_types: [CrossAttnUpBlock2D, UpBlock2D],
  layers_per_block: 1, norm_num_groups: 4, cross_attention_dim: 40, attention_head_dim: 4, use_linear_projection: true,
  addition_embed_type: text_time, addition_time_embed_dim: 8, projection_class_embeddings_input_dim: 60}"""
TEXT_2 = """model.text_encoder_2={vocab_size: %d, hidden_size: 24, intermediate_size: 32, num_hidden_layers: 2,
  num_attention_heads: 2, max_position_embeddings: 16, projection_dim: 12, hidden_act: gelu}"""
PIXART = """model.transformer={num_attention_heads: 2, attention_head_dim: 12, num_layers: 2, cross_attention_dim: 24,
  in_channels: 4, out_channels: 8, sample_size: 8, patch_size: 2, caption_channels: 16}"""
QUICK = ["stages.pixels.steps=3", "stages.latents.steps=3", "sampling.prompts=[]", "evaluation.samples=0"]


def train(recipe, output, *overrides):
    subprocess.run(
        [BIN / "yard-train", recipe, f"output={output}", *QUICK, *overrides],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=True,
        timeout=100,
        capture_output=True,
    )
    return output / "pipeline"


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def recipe(work):
    return tiny_run.make_recipe(work)


@pytest.fixture(scope="module")
def pipelines(work, recipe):
    vocabulary = len(json.loads((work / "tokenizer/vocab.json").read_text()))
    return {
        "StableDiffusionPipeline": train(recipe, work / "one"),
        "StableDiffusionXLPipeline": train(recipe, work / "xl", XL, TEXT_2 % vocabulary),
        "PixArtAlphaPipeline": train(recipe, work / "pixart", "model.unet=null", PIXART),
    }


CALLS = {
    "StableDiffusionPipeline": {},
    "StableDiffusionXLPipeline": {"original_size": (16, 16)},
    "PixArtAlphaPipeline": {"max_sequence_length": 16, "use_resolution_binning": False, "clean_caption": False},
}


@pytest.mark.parametrize("name", CALLS)
def test_a_saved_pipeline_opens_in_diffusers_and_in_yard_sample(work, pipelines, name):
    pipeline = DiffusionPipeline.from_pretrained(pipelines[name])
    assert type(pipeline).__name__ == name
    pipeline.set_progress_bar_config(disable=True)
    pictures = pipeline("red circle", num_inference_steps=2, height=16, width=16, output_type="np", **CALLS[name]).images
    assert pictures.shape == (1, 16, 16, 3) and np.isfinite(pictures).all()
    out = work / f"{name}.png"
    arguments = ["sample", pipelines[name], "red circle", "blue square", "--count", "2", "--steps", "2", "--out", out]
    tiny_run.yard_ok(*arguments, home=work / "home")
    first = out.read_bytes()
    assert Image.open(out).size == (2 * 16 + 2, 2 * 16 + 2)
    tiny_run.yard_ok(*arguments, home=work / "home")
    assert out.read_bytes() == first
    tiny_run.yard_ok(*arguments, "--scheduler", "dpm++", "--seed", "1", home=work / "home")
    assert out.read_bytes() != first


def test_what_yard_sample_cannot_do_is_told(work, pipelines):
    def refusal(*arguments):
        done = tiny_run.yard("sample", *arguments, home=work / "home")
        return done.returncode, done.stderr

    model = pipelines["StableDiffusionPipeline"]
    assert refusal(work / "nowhere", "red")[0] == 3
    code, text = refusal(model, "red", "--scheduler", "dmp++")
    assert code == 2 and "dpm++" in text
    code, text = refusal(model, "red", "--width", "18")
    assert code == 2 and "16 or 20 would fit" in text
    code, text = refusal(model, "red", "--scheduler", "flow")
    assert code == 2 and "rectified flow" in text


def samples_of(folder):
    """Members of each sample of a folder's shards, by key."""
    found = {}
    for path in sorted(pathlib.Path(folder).glob("*.tar")):
        with tarfile.open(path) as shard:
            for member in shard:
                key, extension = member.name.split(".", 1)
                found.setdefault(key, {})[extension] = shard.extractfile(member).read()
    return found


def test_latents_are_those_of_diffusers_and_a_broken_run_goes_on(work, pipelines):
    model, shards, latents = pipelines["StableDiffusionXLPipeline"], work / "shards", work / "latents"
    arguments = ["prep", "latents", "--model", model, shards, latents, "--resolution", "16", "--text"]
    tiny_run.yard_ok(*arguments, "--ranks", "2", home=work / "home")
    made, pictures = samples_of(latents), samples_of(shards)
    assert made.keys() == pictures.keys() and len(made) == 48
    autoencoder = AutoencoderKL.from_pretrained(model / "vae")
    for key in ("000", "047"):
        picture = Image.open(io.BytesIO(pictures[key]["png"])).convert("RGB").resize((16, 16), Image.BILINEAR)
        pixels = torch.tensor(np.array(picture)).permute(2, 0, 1)[None] / 127.5 - 1
        expected = autoencoder.encode(pixels).latent_dist.mean[0].detach().numpy()
        ours = np.load(io.BytesIO(made[key]["latent.npy"]))
        assert np.abs(ours - expected).max() <= 0.02 * np.abs(expected).max()  # Pillow rounds to 8 bits
        assert np.load(io.BytesIO(made[key]["context.npy"])).shape == (16, 40)
        assert np.load(io.BytesIO(made[key]["pooled.npy"])).shape == (12,)
        assert np.load(io.BytesIO(made[key]["sizes.npy"])).tolist() == [24, 24, 0, 0, 16, 16]
        assert made[key]["txt"] == pictures[key]["txt"]
    files = sorted(latents.glob("*.tar"))
    assert len(files) == len(list(shards.glob("*.tar"))) > 1
    before = files[1].read_bytes()
    files[1].unlink()
    done = tiny_run.yard_ok(*arguments, home=work / "home")
    assert f"in 1 shards written, {len(files) - 1} shards were there already" in done.stdout
    assert files[1].read_bytes() == before
    other = tiny_run.yard(*arguments[:3], pipelines["StableDiffusionPipeline"], *arguments[4:], home=work / "home")
    assert other.returncode == 2 and "made by 2 text encoders, this run has 1" in other.stderr
