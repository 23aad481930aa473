"""Our schedulers beside diffusers' own: the same configuration file, the same model outputs, the same
samples after every step (models_tool, all in one process)."""

import dataclasses
import json
import os
import pathlib
import random
import subprocess

import diffusers
import pytest
import torch
from diffusers.schedulers import scheduling_ddpm, scheduling_flow_match_euler_discrete
from safetensors.torch import load_file, save_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("YARD_BIN_DIR", ROOT / "build/release/bin"))
ERROR_MAX = 1e-5
SHAPE = (2, 3, 4, 5)
DRAWN = 60


@dataclasses.dataclass
class Case:
    cls: str
    config: dict
    steps: int = 9
    eta: float = 0.0
    mu: float | None = None

    def build(self):
        return getattr(diffusers, self.cls)(**self.config)


SD = dict(beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear")
DDPM, DDIM, DPM = "DDPMScheduler", "DDIMScheduler", "DPMSolverMultistepScheduler"
EULER, FLOW = "EulerDiscreteScheduler", "FlowMatchEulerDiscreteScheduler"

CASES = {
    "ddpm": Case(DDPM, {}),
    "ddpm, every step": Case(DDPM, dict(num_train_timesteps=40), steps=40),
    "ddpm, log variance, not clipped": Case(DDPM, SD | dict(variance_type="fixed_small_log", clip_sample=False)),
    "ddpm, large variance": Case(DDPM, dict(beta_schedule="squaredcos_cap_v2", variance_type="fixed_large")),
    "ddpm, zero terminal snr": Case(DDPM, SD | dict(
        rescale_betas_zero_snr=True, prediction_type="v_prediction", timestep_spacing="trailing", clip_sample=False)),
    "ddim of stable diffusion": Case(DDIM, SD | dict(clip_sample=False, set_alpha_to_one=False, steps_offset=1),
                                     steps=50),
    "ddim with noise": Case(DDIM, SD | dict(clip_sample_range=2.0), eta=0.7),
    "ddim, zero terminal snr": Case(DDIM, SD | dict(
        rescale_betas_zero_snr=True, prediction_type="v_prediction", timestep_spacing="trailing")),
    "ddim, x0": Case(DDIM, dict(prediction_type="sample", timestep_spacing="linspace")),
    "ddim, one step": Case(DDIM, SD | dict(timestep_spacing="trailing"), steps=1),
    "ddim, given betas": Case(DDIM, dict(num_train_timesteps=20, trained_betas=[0.01 * (i + 1) for i in range(20)])),
    "dpm++ 2m": Case(DPM, SD, steps=20),
    "dpm++ 2m, few steps": Case(DPM, SD, steps=7),
    "dpm++ 2m karras": Case(DPM, SD | dict(use_karras_sigmas=True), steps=25),
    "dpm++ 2m sde": Case(DPM, SD | dict(algorithm_type="sde-dpmsolver++", use_karras_sigmas=True), steps=20),
    "dpm++ 2m sde heun": Case(DPM, SD | dict(algorithm_type="sde-dpmsolver++", solver_type="heun"), steps=20),
    "dpm++ heun, ends at sigma_min": Case(DPM, SD | dict(solver_type="heun", final_sigmas_type="sigma_min"), steps=20),
    "dpm++ 1": Case(DPM, SD | dict(solver_order=1, timestep_spacing="leading", steps_offset=1), steps=20),
    "dpm++ 2m, clipped lambda": Case(DPM, dict(
        beta_schedule="squaredcos_cap_v2", lambda_min_clipped=-5.1, prediction_type="sample"), steps=20),
    "dpm++ 2m, zero terminal snr": Case(DPM, SD | dict(
        rescale_betas_zero_snr=True, prediction_type="v_prediction", timestep_spacing="trailing"), steps=16),
    "dpm++ 2m, euler at the end": Case(DPM, SD | dict(
        euler_at_final=True, lower_order_final=False, final_sigmas_type="sigma_min"), steps=16),
    "dpm++ 1, flow": Case(DPM, dict(
        prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0, solver_order=1), steps=10),
    "dpm++ 2m, flow": Case(DPM, dict(
        prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=2.0), steps=20),
    "euler": Case(EULER, SD, steps=20),
    "euler of stable diffusion xl": Case(EULER, SD | dict(timestep_spacing="leading", steps_offset=1), steps=30),
    "euler karras": Case(EULER, SD | dict(use_karras_sigmas=True), steps=20),
    "euler karras between": Case(EULER, SD | dict(use_karras_sigmas=True, sigma_min=0.05, sigma_max=10.0), steps=20),
    "euler karras, cosine": Case(EULER, dict(beta_schedule="squaredcos_cap_v2", use_karras_sigmas=True), steps=12),
    "euler, v": Case(EULER, SD | dict(prediction_type="v_prediction", timestep_spacing="trailing"), steps=20),
    "euler, x0, ends at sigma_min": Case(EULER, dict(prediction_type="sample", final_sigmas_type="sigma_min")),
    "flow": Case(FLOW, {}, steps=28),
    "flow of stable diffusion 3": Case(FLOW, dict(shift=3.0), steps=28),
    "flow, shifted by resolution": Case(FLOW, dict(use_dynamic_shifting=True), mu=0.9),
    "flow, shifted linearly to an end": Case(FLOW, dict(
        use_dynamic_shifting=True, time_shift_type="linear", shift_terminal=0.1), mu=1.3),
    "flow, with noise": Case(FLOW, dict(stochastic_sampling=True, shift=2.0)),
}


def drawn(seed):
    rng = random.Random(f"scheduler {seed}")
    cls = rng.choice([DDPM, DDIM, DPM, EULER])
    config = rng.choice([{}, SD, dict(beta_schedule="squaredcos_cap_v2")]) | dict(
        num_train_timesteps=rng.choice([50, 200, 1000]), timestep_spacing=rng.choice(["leading", "trailing", "linspace"]),
        prediction_type=rng.choice(["epsilon", "v_prediction", "sample"]))
    if config["prediction_type"] != "epsilon" and rng.random() < 0.3:
        config["rescale_betas_zero_snr"] = True
    if cls in (DDPM, DDIM):
        config["clip_sample"] = rng.random() < 0.5
    if cls == DPM:
        config |= dict(solver_type=rng.choice(["midpoint", "heun"]), solver_order=rng.randint(1, 2),
                       algorithm_type=rng.choice(["dpmsolver++", "sde-dpmsolver++"]),
                       final_sigmas_type=rng.choice(["zero", "sigma_min"]))
    return Case(cls, config, steps=rng.randint(2, 30), eta=rng.choice([0.0, 0.3, 1.0]) if cls == DDIM else 0.0)


CASES |= {f"drawn {i}": drawn(i) for i in range(DRAWN)}


def training(case, scheduler, tensors):
    """What a training script shows the model and asks of it."""
    clean, noise, t = tensors["clean"], tensors["sample"], tensors["timesteps"]
    if case.config.get("use_flow_sigmas"):
        sigma = (t / scheduler.config.num_train_timesteps).view(-1, 1, 1, 1)
        return (1 - sigma) * clean + sigma * noise, noise - clean
    if case.cls == FLOW:
        sigma = (t / scheduler.config.num_train_timesteps).view(-1, 1, 1, 1)
        scheduler = case.build()  # as trained with: all its timesteps
        at = (scheduler.timesteps - t[0]).abs().argmin()
        noisy = scheduler.scale_noise(clean, scheduler.timesteps[at].expand(2), noise)
        assert torch.allclose(noisy[0], ((1 - sigma) * clean + sigma * noise)[0], atol=1e-5)
        return (1 - sigma) * clean + sigma * noise, noise - clean
    ddpm = diffusers.DDPMScheduler.from_config(scheduler.config)
    targets = {"epsilon": noise, "sample": clean, "v_prediction": ddpm.get_velocity(clean, noise, t)}
    return ddpm.add_noise(clean, noise, t), targets[scheduler.config.prediction_type]


def reference(case, scheduler, tensors, monkeypatch):
    """The samples after every step, and what the model was shown before."""
    noises = iter(tensors["noise"])
    for module in (scheduling_ddpm, scheduling_flow_match_euler_discrete):
        monkeypatch.setattr(module, "randn_tensor", lambda *_, **__: current)
    sample, inputs, samples = tensors["sample"], [], []
    for t, output in zip(scheduler.timesteps, tensors["outputs"]):
        current = next(noises)
        shown = scheduler.scale_model_input(sample, t) if hasattr(scheduler, "scale_model_input") else sample
        options = {"eta": case.eta, "variance_noise": current if case.eta > 0 else None} if case.cls == DDIM else {}
        if case.cls == DPM and case.config.get("algorithm_type") == "sde-dpmsolver++":
            options = {"variance_noise": current}
        inputs.append(shown)
        sample = scheduler.step(output, t, sample, **options).prev_sample
        samples.append(sample)
    return torch.stack(inputs), torch.stack(samples)


@dataclasses.dataclass
class Outcome:
    scheduler: object
    tensors: dict
    ours: dict
    saved: pathlib.Path


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    root = tmp_path_factory.mktemp("schedulers")
    jobs, found = [], {}
    for i, (name, case) in enumerate(CASES.items()):
        torch.manual_seed(i)
        scheduler = case.build()
        scheduler.save_pretrained(root / f"{i}")
        scheduler.set_timesteps(case.steps, **({} if case.mu is None else {"mu": case.mu}))
        total = scheduler.config.num_train_timesteps
        scale = float(getattr(scheduler, "init_noise_sigma", 1.0))
        tensors = {"sample": torch.randn(SHAPE) * scale, "outputs": torch.randn(case.steps, *SHAPE),
                   "noise": torch.randn(case.steps, *SHAPE), "clean": torch.randn(SHAPE),
                   "timesteps": torch.tensor([total - 1, 1])}
        if case.cls == FLOW:
            tensors["timesteps"] = case.build().timesteps[[total // 3, -1]]
        save_file(tensors, root / f"{i}.in")
        jobs.append({"scheduler": f"{root}/{i}", "in": f"{root}/{i}.in", "out": f"{root}/{i}.out",
                     "saved": f"{root}/{i}.saved", "steps": case.steps, "eta": case.eta, "mu": case.mu})
        found[name] = Outcome(scheduler, tensors, {}, root / f"{i}.saved")
    (root / "jobs.json").write_text(json.dumps(jobs))
    run = subprocess.run([BIN / "models_tool", root / "jobs.json"], capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stderr
    for job, outcome in zip(jobs, found.values()):
        outcome.ours = load_file(job["out"])
    return found


def assert_close(ours, reference, error_max=ERROR_MAX):
    assert ours.shape == reference.shape
    error = (ours - reference).abs().max() / reference.abs().max()
    assert error <= error_max, f"relative error {error:.2e}"


@pytest.mark.parametrize("name", CASES)
def test_every_step_gives_the_samples_of_diffusers(outcomes, name, monkeypatch):
    case, outcome = CASES[name], outcomes[name]
    timesteps = outcome.scheduler.timesteps.double()
    assert_close(outcome.ours["timesteps"], timesteps, 0 if case.cls in (DDPM, DDIM, DPM) else 1e-6)
    inputs, samples = reference(case, outcome.scheduler, outcome.tensors, monkeypatch)
    # Euler steps of the cosine schedule start at thousands, and diffusers' f32 takes the difference of
    # two numbers of that size: what it has lost there stays lost. Elsewhere the start is 1 to 15.
    error_max = ERROR_MAX + 1e-7 * outcome.ours["initial_scale"].item()
    for step in range(case.steps):
        assert_close(outcome.ours["inputs"][step], inputs[step], error_max)
        assert_close(outcome.ours["samples"][step], samples[step], error_max)
    scale = float(getattr(case.build(), "init_noise_sigma", 1.0))
    if case.cls != EULER:
        assert outcome.ours["initial_scale"].item() == scale
    else:
        assert abs(outcome.ours["initial_scale"].item() / float(outcome.scheduler.init_noise_sigma) - 1) < 1e-6


@pytest.mark.parametrize("name", CASES)
def test_training_pairs_are_those_of_diffusers(outcomes, name):
    outcome = outcomes[name]
    noisy, target = training(CASES[name], outcome.scheduler, outcome.tensors)
    assert_close(outcome.ours["training.noisy"], noisy)
    assert_close(outcome.ours["training.target"], target)


@pytest.mark.parametrize("name", CASES)
def test_the_configuration_comes_back(outcomes, name):
    case = CASES[name]
    loaded = getattr(diffusers, case.cls).from_pretrained(outcomes[name].saved)
    ignored = ("_class_name", "_diffusers_version", "_use_default_values")
    assert {k: v for k, v in loaded.config.items() if k not in ignored} == \
        {k: v for k, v in case.build().config.items() if k not in ignored}
