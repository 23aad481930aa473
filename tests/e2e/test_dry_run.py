"""yard-train --dry-run and --simulate: what they print, and that they write nothing."""

import os
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("YARD_BIN_DIR", ROOT / "build/release/bin"))

RECIPE = """
data: {synthetic: {samples: 16, tokens: 5}}
model:
  unet: {block_out_channels: [8, 8], norm_num_groups: 4, layers_per_block: 1, cross_attention_dim: 8,
    down_block_types: [DownBlock2D, CrossAttnDownBlock2D], attention_head_dim: 2,
    up_block_types: [CrossAttnUpBlock2D, UpBlock2D]}
stages:
  - {name: low, train: denoiser, resolution: 8, steps: 1000, batch: 64, micro_batch: auto, learning_rate: 1e-3}
  - {name: high, train: denoiser, resolution: 16, steps: 500, batch: 64, micro_batch: 4, learning_rate: 1e-3}
"""


def yard_train(folder, *arguments):
    (folder / "recipe.yaml").write_text(RECIPE)
    env = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE")}
    return subprocess.run(
        [BIN / "yard-train", "recipe.yaml", *arguments],
        cwd=folder,
        env={**env, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=100,
    )


def test_a_dry_run_tells_size_speed_and_cost_and_writes_nothing(tmp_path):
    done = yard_train(tmp_path, "--dry-run", "--price", "2.5")
    assert done.returncode == 0, done.stderr
    assert re.search(r"unet +0\.\d+ M parameters", done.stdout)
    assert "stage 'low': 1000 steps of 64 samples on 1 ranks, 64 at once" in done.stdout
    assert re.search(r"memory +[\d.]+ [KM]iB a rank", done.stdout)
    work = [float(x) for x in re.findall(r"work +([\d.e+-]+) GFLOP a step", done.stdout)]
    assert 3.5 < work[1] / work[0] < 4.8, "four times the pixels, and more for attention"
    assert "at 2.5 an hour and rank" in done.stdout
    assert [p.name for p in tmp_path.iterdir()] == ["recipe.yaml"]


def test_a_simulation_prints_every_stage_on_its_hosts(tmp_path):
    done = yard_train(tmp_path, "--simulate", "hosts=1:2,gpus=8,speed=30,price=12")
    assert done.returncode == 0, done.stderr
    table = done.stdout[done.stdout.index("simulated:") :].splitlines()
    low = next(line.split() for line in table if line.startswith("low"))
    high = next(line.split() for line in table if line.startswith("high"))
    assert low[1:3] == ["8", "64"] and high[1:3] == ["16", "64"]
    assert table[-1].startswith("all")


def test_a_cluster_that_does_not_fit_is_refused(tmp_path):
    done = yard_train(tmp_path, "--simulate", "host=2")
    assert done.returncode == 2
    assert "did you mean 'hosts'?" in done.stderr
    done = yard_train(tmp_path, "--simulate", "hosts=5")
    assert done.returncode == 2
    assert "60 or 65 would fit" in done.stderr
