"""The line through public commands: pictures, shards, tokenizer, training, report, exported model."""

import json
import os
import re
import statistics
import subprocess
import tarfile

import pytest
import tiny_run
from PIL import Image

ROOT = tiny_run.ROOT


def demo(out, *arguments, **env):
    return subprocess.run(
        [str(ROOT / "demo/run.sh"), *arguments],
        env={**os.environ, "YARD_BIN_DIR": str(tiny_run.BIN), "DEMO_OUT": str(out), **env},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """The demo's folder: what a person's own demo left in the tree stays."""
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def job(out):
    return out / "home/jobs/demo"


@pytest.fixture(scope="module")
def smallest_demo(out):
    done = demo(out, "--smallest")
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done


def test_demo_ends_with_the_paths_of_its_outcome(smallest_demo, out, job):
    for path in [out / "report.html", job / "output/samples", job / "output/pipeline"]:
        assert str(path) in smallest_demo.stdout
        assert path.exists()


def test_every_picture_is_in_the_shards_once_with_its_caption(smallest_demo, out):
    pictures = {path.stem: path for path in (out / "pictures").glob("*.png")}
    assert len(pictures) >= 100
    members = []
    for shard in sorted((out / "shards").glob("*.tar")):
        with tarfile.open(shard) as tar:
            members += [(entry.name, tar.extractfile(entry).read()) for entry in tar]
    assert len(members) == len(dict(members)), "a member is there twice"
    content = dict(members)
    for name, path in pictures.items():
        assert content[f"{name}.png"] == path.read_bytes()
        assert content[f"{name}.txt"] == path.with_suffix(".txt").read_bytes()
    assert len(content) == 2 * len(pictures)


def test_killed_rank_was_replaced_and_every_step_was_done(smallest_demo, job):
    events = [json.loads(line) for line in (job / "events.jsonl").read_text().splitlines()]
    names = [event["event"] for event in events]
    assert names.count("chaos_kill") == 1
    assert names.count("recovered") == 1
    assert events[-1]["state"] == "succeeded"
    steps = tiny_run.losses(job)
    (planned,) = {b["global_steps"] for b in tiny_run.heartbeats(job) if b["event"] == "step"}
    assert sorted(steps) == list(range(1, planned + 1))


def test_ledger_accounts_for_every_second(smallest_demo, job):
    ledger = json.loads((job / "ledger.json").read_text())
    parts = ["startup", "productive", "data_wait", "comm_wait", "checkpoint"]
    parts += ["evaluation", "lost_work", "recovery", "other"]
    assert sum(ledger[f"{part}_s"] for part in parts) == pytest.approx(ledger["wall_s"], rel=0.001)
    assert ledger["restarts"] == 1
    assert ledger["complete"]


def test_report_shows_every_prompt_and_loads_nothing(smallest_demo, out, job):
    page = (out / "report.html").read_text()
    samples = [b for b in tiny_run.heartbeats(job) if b["event"] == "sample"]
    assert samples
    assert page.count("data:image/png;base64,") >= len(samples[-1]["prompts"])
    for prompt in samples[-1]["prompts"]:
        assert prompt in page
    assert "killed on purpose" in page
    assert not re.search(r"""(src|href)=["']?(https?:)?//|<script|@import""", page)


def test_sample_grids_open(smallest_demo, job):
    samples = [b for b in tiny_run.heartbeats(job) if b["event"] == "sample"]
    for sample in samples:
        with Image.open(job / sample["path"]) as picture:
            picture.load()
            assert picture.mode == "RGB"


def test_exported_pipeline_loads_in_diffusers_and_makes_a_picture(smallest_demo, job):
    import torch
    from diffusers import StableDiffusionPipeline

    pipeline = StableDiffusionPipeline.from_pretrained(job / "output/pipeline", safety_checker=None)
    pipeline.set_progress_bar_config(disable=True)
    side = pipeline.unet.config.sample_size * pipeline.vae_scale_factor
    picture = pipeline(
        "red apple",
        num_inference_steps=2,
        height=side,
        width=side,
        generator=torch.Generator().manual_seed(0),
    ).images[0]
    assert picture.size == (side, side)


def test_second_run_starts_clean(smallest_demo, out, job):
    (out / "pictures/stale.png").write_bytes(b"left over")
    done = demo(out, "--smallest", "--no-chaos")
    assert done.returncode == 0, done.stderr[-4000:]
    assert not (out / "pictures/stale.png").exists()
    events = (job / "events.jsonl").read_text()
    assert "chaos_kill" not in events


def test_picture_without_caption_is_told_before_anything_is_made(tmp_path):
    tiny_run.draw("red", "circle").save(tmp_path / "one.png")
    done = demo(tmp_path / "out", "--smallest", IMAGES=str(tmp_path))
    assert done.returncode == 2
    assert "one.png has no caption" in done.stderr
    assert "one.txt" in done.stderr


def test_training_lowers_the_loss(tmp_path):
    recipe = tiny_run.make_recipe(tmp_path)
    arguments = ["stages.pixels.steps=80", "stages.latents.steps=120", "checkpoint.every_steps=0"]
    tiny_run.yard_ok(
        "run", recipe, *arguments, "--name", "learns", "--ranks", 2, home=tmp_path / "home"
    )
    losses = tiny_run.losses(tmp_path / "home/jobs/learns")
    mean = lambda first, last: statistics.mean(losses[step] for step in range(first, last + 1))
    # The margins hold for any seed tried; they are far from what longer training reaches.
    assert mean(71, 80) < 0.7 * mean(1, 5), "autoencoder"
    assert mean(181, 200) < 0.9 * mean(81, 90), "denoiser"
