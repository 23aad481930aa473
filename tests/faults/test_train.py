"""Killed ranks, Ctrl-C and a full disk: the run goes on from its last checkpoint, to the same bits."""

import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import time

import pytest

import tiny_run
from tiny_run import BIN, heartbeats, losses, weights_of, yard, yard_ok

# As many as on request: YARD_TEST_KILLS=20 pytest tests/faults/test_train.py -k instants
KILL_COUNT = int(os.environ.get("YARD_TEST_KILLS", "8"))
# Of the kills, those of all ranks at once.
BOTH_SHARE = 0.3
# Three attempts in a row without a new step end a job: fewer kills than that cannot.
KILLS_PER_JOB_MAX = 2
JOB_COUNT_MAX = 40
RUN_SECONDS_MAX = 110


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    return tmp_path_factory.mktemp("faults")


@pytest.fixture(scope="module")
def recipe(work):
    return tiny_run.make_recipe(work)


@pytest.fixture(scope="module")
def undisturbed(work, recipe):
    """(weights, losses, seconds) of the run that nobody disturbs."""
    begin = time.monotonic()
    yard_ok("run", recipe, "--name", "undisturbed", "--ranks", 2, home=work / "home")
    seconds = time.monotonic() - begin
    job = work / "home/jobs/undisturbed"
    return weights_of(job / "output"), losses(job), seconds


def start_job(work, *arguments):
    return subprocess.Popen(
        [str(BIN / "yard"), "run", *map(str, arguments)],
        env={**os.environ, "YARD_HOME": str(work / "home")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def living_ranks(job):
    try:
        status = json.loads((job / "status.json").read_text())
    except FileNotFoundError:
        return []
    return [rank["pid"] for rank in status["ranks"] if rank["alive"]]


def kill_at_random_instants(job, running, dice, count, seconds):
    """SIGKILLs a random rank, or all, up to `count` times, each within `seconds` of the one before."""
    killed = 0
    while killed < count and running.poll() is None:
        time.sleep(dice.uniform(0, seconds))
        pids = living_ranks(job)
        if not pids:
            continue
        victims = pids if dice.random() < BOTH_SHARE else [dice.choice(pids)]
        killed += any([kill(pid) for pid in victims])
    return killed


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def test_weights_equal_the_undisturbed_run_after_ranks_were_killed_at_random_instants(
    work, recipe, undisturbed
):
    weights, undisturbed_losses, seconds = undisturbed
    dice = random.Random(20261130)
    killed = 0
    for index in range(JOB_COUNT_MAX):
        if killed >= KILL_COUNT:
            break
        name = f"killed-{index}"
        job = work / "home/jobs" / name
        running = start_job(work, recipe, "--name", name, "--ranks", 2)
        # A job may end before its second instant has come.
        killed += kill_at_random_instants(job, running, dice, KILLS_PER_JOB_MAX, 0.6 * seconds)
        output, _ = running.communicate(timeout=RUN_SECONDS_MAX)
        assert running.returncode == 0, output
        assert weights_of(job / "output") == weights
        assert losses(job) == undisturbed_losses
    assert killed >= KILL_COUNT


def wait_for_phase(job, running, phase):
    """Returns once rank 0 has told that it is in `phase`, or the job has ended."""
    deadline = time.monotonic() + RUN_SECONDS_MAX
    while time.monotonic() < deadline and running.poll() is None:
        beats = heartbeats(job)
        if any(beat["event"] == "phase" and beat["phase"] == phase for beat in beats):
            return
        time.sleep(0.005)


@pytest.mark.parametrize("phase", ["startup", "train", "checkpoint", "evaluate", "sample", "finish"])
def test_interrupted_in_each_phase_stops_cleanly_and_resumes_to_the_same_weights(
    work, recipe, undisturbed, phase
):
    name = f"interrupted-{phase}"
    job = work / "home/jobs" / name
    running = start_job(work, recipe, "--name", name, "--ranks", 2)
    wait_for_phase(job, running, phase)
    running.send_signal(signal.SIGINT)
    output, _ = running.communicate(timeout=RUN_SECONDS_MAX)
    # In the last phase the run may have ended before the signal reached it.
    assert running.returncode in ([8, 0] if phase == "finish" else [8]), output
    assert living_ranks(job) == []
    if running.returncode == 8:
        yard_ok("run", "--resume", name, home=work / "home")
    assert weights_of(job / "output") == undisturbed[0]
    assert losses(job) == undisturbed[1]


@pytest.fixture
def small_disk(tmp_path):
    """A function that mounts a file system of so many bytes."""
    mounted = []

    def mount(size_bytes):
        folder = tmp_path / "disk"
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            pytest.skip(f"NOT TESTED, a full disk: cannot mount a tmpfs here: {done.stderr.strip()}")
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        subprocess.run(["umount", str(folder)], check=True)


def size_of(folder):
    return sum(path.stat().st_size for path in pathlib.Path(folder).rglob("*") if path.is_file())


def content_of(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(pathlib.Path(folder).rglob("*"))
        if path.is_file()
    }


def train_alone(recipe, output, *overrides):
    """One rank, no job around it."""
    command = [str(BIN / "yard-train"), str(recipe), f"output={output}", *overrides]
    # Two threads that wait for each other on a busy machine take minutes for so small a model.
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=RUN_SECONDS_MAX
    )


def test_full_disk_while_saving_is_an_error_and_leaves_the_older_checkpoint_intact(
    recipe, tmp_path, small_disk
):
    free = tmp_path / "free"
    assert train_alone(recipe, free).returncode == 0

    first = tmp_path / "first"
    done = train_alone(recipe, first, "stages.pixels.steps=5", "stages.latents.steps=1", "checkpoint.keep=100")
    assert done.returncode == 0, done.stderr
    (checkpoint,) = [p for p in (first / "checkpoints").iterdir() if p.name.endswith("00000005")]
    # Room for one checkpoint and a half: the second one cannot be whole.
    disk = small_disk(int(1.5 * size_of(checkpoint)) + (64 << 10))
    done = train_alone(recipe, disk / "output")
    assert done.returncode == 5, f"{done.returncode}\n{done.stderr}"
    assert "no space left" in done.stderr.lower(), done.stderr
    assert "checkpoint" in done.stderr, done.stderr

    left = [p for p in (disk / "output/checkpoints").iterdir() if p.is_dir()]
    assert [p.name for p in left] == [checkpoint.name], "the half-written one is gone"
    before = content_of(left[0])
    subprocess.run(["mount", "-o", "remount,size=256m", str(disk)], check=True)
    assert content_of(left[0]) == before
    done = train_alone(recipe, disk / "output")
    assert done.returncode == 0, done.stderr
    assert weights_of(disk / "output") == weights_of(free)


def test_output_that_cannot_be_written_is_an_error_that_names_it(recipe, tmp_path):
    in_the_way = tmp_path / "file"
    in_the_way.write_text("not a folder")
    done = train_alone(recipe, in_the_way / "output")
    assert done.returncode in (2, 3), done.stderr
    assert str(in_the_way) in done.stderr


def test_unknown_job_to_resume_is_not_found(work):
    done = yard("run", "--resume", "no-such-job", home=work / "home")
    assert done.returncode == 3, done.stderr
    assert "no-such-job" in done.stderr


def test_shards_that_are_gone_are_named(recipe, tmp_path):
    done = train_alone(recipe, tmp_path / "output", f"data.shards={tmp_path / 'gone'}")
    assert done.returncode == 3, done.stderr
    assert "gone" in done.stderr


def test_cut_shard_is_corrupt_and_named(recipe, tmp_path):
    source = pathlib.Path(recipe).parent / "shards"
    shards = tmp_path / "shards"
    shards.mkdir()
    for tar in source.glob("*.tar"):
        shutil.copy(tar, shards)
    victim = sorted(shards.glob("*.tar"))[0]
    os.truncate(victim, victim.stat().st_size // 2 // 512 * 512 + 100)
    done = train_alone(recipe, tmp_path / "output", f"data.shards={shards}")
    assert done.returncode == 4, f"{done.returncode} {done.stderr}"
    assert victim.name in done.stderr
