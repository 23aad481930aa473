"""Models of every prediction, trained by yard-train, make pictures in diffusers by the scheduler they name."""

import os
import subprocess

import numpy as np
import pytest
from diffusers import StableDiffusionPipeline

import tiny_run
from tiny_run import BIN


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    return tiny_run.make_recipe(tmp_path_factory.mktemp("predictions"))


@pytest.mark.parametrize(
    "diffusion, scheduler, first_timestep",
    [
        ("{prediction: flow_prediction, flow_shift: 2}", "DPMSolverMultistepScheduler", 999),
        ("{prediction: v_prediction, zero_terminal_snr: true}", "DDIMScheduler", 999),
        ("{prediction: sample}", "DDIMScheduler", 751),
    ],
)
def test_exported_pipeline_makes_a_picture_by_its_scheduler(
    recipe, tmp_path, diffusion, scheduler, first_timestep
):
    subprocess.run(
        [BIN / "yard-train", recipe, f"output={tmp_path / 'out'}", f"diffusion={diffusion}"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=True,
        capture_output=True,
        timeout=100,
    )
    pipeline = StableDiffusionPipeline.from_pretrained(tmp_path / "out/pipeline")
    assert type(pipeline.scheduler).__name__ == scheduler
    pipeline.set_progress_bar_config(disable=True)
    pictures = pipeline("red", num_inference_steps=4, height=16, width=16, output_type="np").images
    assert pipeline.scheduler.timesteps[0] == first_timestep
    assert pictures.shape == (1, 16, 16, 3) and np.isfinite(pictures).all()
