"""The line through public commands: pictures, the platform, a pipeline of jobs, report, exported model.

It is the demo at its smallest: CI has no other run of it.
"""

import json
import os
import re
import statistics
import subprocess
import tarfile

import pytest
import tiny_run
from PIL import Image

import platform_host

ROOT = tiny_run.ROOT
STEPS = ["px32", "px64", "denoiser"]


def demo(out, *arguments, **env):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return subprocess.run(
        [str(ROOT / "demo/run.sh"), *arguments],
        env={**kept, "YARD_BIN_DIR": str(tiny_run.BIN), "DEMO_OUT": str(out), **env},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """The demo's folder: what a person's own demo left in the tree stays."""
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def smallest_demo(out):
    platform_host.needs_sandbox()
    done = demo(out, "--smallest")
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done


@pytest.fixture(scope="module")
def records(smallest_demo, out):
    """The folders of the training steps, by name."""
    return {name: out / "home/pipelines/emoji/steps" / name for name in STEPS}


def test_demo_ends_with_the_paths_of_its_outcome(smallest_demo, out, records):
    output = records["denoiser"] / "output"
    for path in [out / "report.html", out / "report.png", output / "samples", output / "pipeline"]:
        assert str(path) in smallest_demo.stdout
        assert path.exists()
    with Image.open(out / "report.png") as picture:
        picture.load()


def test_every_picture_is_in_the_shards_once_with_its_caption(smallest_demo, out):
    pictures = {path.stem: path for path in (out / "pictures").glob("*.png")}
    assert len(pictures) >= 100
    members = []
    for shard in sorted((out / "home/s3/data/emoji").glob("*.tar")):
        with tarfile.open(shard) as tar:
            members += [(entry.name, tar.extractfile(entry).read()) for entry in tar]
    assert len(members) == len(dict(members)), "a member is there twice"
    content = dict(members)
    sources = [json.loads(body)["source"] for name, body in content.items() if name.endswith(".json")]
    assert sorted(sources) == sorted(f"s3://raw/emoji/{name}.png" for name in pictures)
    packed = {name: body for name, body in content.items() if not name.endswith(".json")}
    assert len(packed) == 2 * len(pictures)
    for name, path in pictures.items():
        assert packed[f"{name}.png"] == path.read_bytes()
        assert packed[f"{name}.txt"] == path.with_suffix(".txt").read_bytes().strip()


def test_pictures_came_by_the_notifications_of_their_bucket(smallest_demo, out):
    """Nothing was listed before the end, and its job has nothing but the ledger in the store."""
    assert "told of what comes to s3://raw/emoji" in smallest_demo.stdout
    entries = sorted((out / "home/s3/train/emoji/prep/state/ledger").glob("*.json"))
    assert entries
    begun = [entry for entry in (json.loads(path.read_text()) for path in entries) if entry["op"] == "begin"]
    assert sum(len(entry["samples"]) for entry in begun) == len(list((out / "pictures").glob("*.png")))


def test_old_checkpoints_leave_the_store_once_their_job_has_ended(out, records):
    for name in STEPS:
        folder = out / "home/s3/train/emoji" / name / "run/output/checkpoints"
        whole = list(folder.glob("step-*/manifest.json"))
        assert 1 <= len(whole) <= 2 and len(list(folder.glob("step-*"))) == len(whole)


def test_each_step_goes_on_from_the_one_before_on_other_hosts(records):
    for name, ranks in zip(STEPS, [1, 2, 2]):
        assert len(list((records[name] / "heartbeats").glob("rank-*.jsonl"))) == ranks
    resumed = {name: [b for b in tiny_run.heartbeats(records[name]) if b["event"] == "resume"]
               for name in STEPS}
    assert not resumed["px32"]
    for before, after in zip(STEPS, STEPS[1:]):
        assert resumed[after][0]["global_step"] == max(tiny_run.losses(records[before]))


def test_killed_rank_was_replaced_and_every_step_was_done(records):
    events = [json.loads(line)
              for line in (records["denoiser"] / "events.jsonl").read_text().splitlines()]
    names = [event["event"] for event in events]
    assert names.count("chaos_kill") == 1
    assert names.count("recovered") == 1
    assert events[-1]["state"] == "succeeded"
    steps = [step for name in STEPS for step in tiny_run.losses(records[name])]
    (planned,) = {b["global_steps"] for name in STEPS
                  for b in tiny_run.heartbeats(records[name]) if b["event"] == "step"}
    assert sorted(steps) == list(range(1, planned + 1))


def test_autoencoder_learns(records):
    losses = tiny_run.losses(records["px32"])
    first, last = min(losses), max(losses)
    mean = lambda steps: statistics.mean(losses[step] for step in steps)
    # Half of the mean square at the start: what a network reaches that paints the mean picture.
    assert mean(range(last - 2, last + 1)) < 0.7 * mean(range(first, first + 3))


def test_ledger_accounts_for_every_second(records):
    parts = ["startup", "productive", "data_wait", "comm_wait", "checkpoint"]
    parts += ["evaluation", "lost_work", "recovery", "other"]
    for name in STEPS:
        ledger = json.loads((records[name] / "ledger.json").read_text())
        assert sum(ledger[f"{part}_s"] for part in parts) == pytest.approx(ledger["wall_s"], rel=0.001)
        assert ledger["restarts"] == (1 if name == "denoiser" else 0)
        assert ledger["complete"]


def test_report_shows_every_prompt_and_loads_nothing(out, records):
    page = (out / "report.html").read_text()
    samples = [b for b in tiny_run.heartbeats(records["denoiser"]) if b["event"] == "sample"]
    assert samples
    assert page.count("data:image/png;base64,") >= len(samples[-1]["prompts"])
    for prompt in samples[-1]["prompts"]:
        assert prompt in page
    for text in ["killed on purpose", "recovered", "host time", *STEPS]:
        assert text in page
    assert not re.search(r"""(src|href)=["']?(https?:)?//|<script|@import""", page)
    for sample in samples:
        with Image.open(records["denoiser"] / sample["path"]) as picture:
            picture.load()
            assert picture.mode == "RGB"


def test_exported_pipeline_loads_in_diffusers_and_makes_a_picture(records):
    import torch
    from diffusers import StableDiffusionPipeline

    pipeline = StableDiffusionPipeline.from_pretrained(
        records["denoiser"] / "output/pipeline", safety_checker=None)
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


def test_a_second_run_that_keeps_passes_over_what_is_done(smallest_demo, out, tmp_path):
    """With pictures of a person's own: they come to the bucket, and what is packed stays as it is."""
    tiny_run.draw("red", "circle").save(tmp_path / "own.jpg")
    (tmp_path / "own.txt").write_text("my own")
    done = demo(out, "--smallest", "--keep", IMAGES=str(tmp_path))
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    assert "1 captioned pictures" in done.stdout
    assert done.stdout.count("completed before") == 5
    assert (out / "home/s3/raw/emoji/own.jpg").read_bytes() == (tmp_path / "own.jpg").read_bytes()


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
