"""Jobs through the real command: what a person sees when things go right and when they do not."""
import contextlib
import json
import os
import pathlib
import signal
import sqlite3
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("YARD_BIN_DIR", ROOT / "build/release/bin"))
SCRIPT = pathlib.Path(__file__).with_name("jobs_script.py")
DEADLINE_S = 60  # for what takes milliseconds on an idle machine
ENDLESS = 1_000_000


class Yard:
    def __init__(self, home):
        self.home = home
        self.env = {**os.environ, "YARD_HOME": str(home)}

    def command(self, *args):
        return [str(BIN / "yard"), *map(str, args)]

    def __call__(self, *args, code=0):
        done = subprocess.run(self.command(*args), env=self.env, capture_output=True, text=True,
                              timeout=DEADLINE_S)
        assert done.returncode == code, f"exit code {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def run(self, name, *script_args, options=(), code=0):
        return self("run", SCRIPT, "--python", sys.executable, "--name", name, *options, "--",
                    *script_args, code=code)

    def follow(self, name, *script_args, options=()):
        """`yard run` in the background; ends with the test."""
        args = self.command("run", SCRIPT, "--python", sys.executable, "--name", name, *options,
                            "--", *script_args)
        return subprocess.Popen(args, env=self.env, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True, start_new_session=True)

    def dir(self, name):
        return self.home / "jobs" / name

    def status(self, name):
        with contextlib.suppress(FileNotFoundError):
            return json.loads((self.dir(name) / "status.json").read_text())
        return {"state": "", "ranks": [], "progress": {"global_step": 0}}

    def describe(self, name):
        return json.loads(self("describe", name, "--json"))

    def events(self, name, event):
        lines = (self.dir(name) / "events.jsonl").read_text().split("\n")[:-1]
        return [line for line in map(json.loads, lines) if line["event"] == event]

    def has_event(self, name, event):
        return (self.dir(name) / "events.jsonl").exists() and self.events(name, event)

    def finish(self, name):
        """The script ends after its running step."""
        (self.dir(name) / "output" / "finish").touch()

    def steps(self, name, rank=0):
        path = self.dir(name) / "heartbeats" / f"rank-{rank}.jsonl"
        if not path.exists():
            return []
        lines = path.read_text().split("\n")[:-1]
        return [beat["global_step"] for beat in map(json.loads, lines) if beat["event"] == "step"]

    def wait_for_steps(self, name, count):
        eventually(lambda: len(self.steps(name)) >= count)


def eventually(condition):
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def is_running(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.fixture
def yard(tmp_path):
    yard = Yard(tmp_path / "home")
    yield yard
    if (yard.home / "jobs").exists():
        for job in (yard.home / "jobs").iterdir():
            if yard.status(job.name)["state"] not in ("", "succeeded", "failed", "stopped"):
                subprocess.run(yard.command("stop", job.name, "--now"), env=yard.env,
                               capture_output=True, timeout=DEADLINE_S)


def test_a_job_runs_to_its_end_and_every_second_is_accounted_for(yard):
    out = yard.run("a", 30, options=["--ranks", 2, "--price", 3600])
    assert "checkpoint of step 30" in out
    assert "where the time went" in out
    assert "job a succeeded" in out
    job = yard.describe("a")
    assert job["state"] == "succeeded"
    ledger = job["ledger"]
    parts = sum(ledger[f"{part}_s"] for part in (
        "startup", "productive", "data_wait", "comm_wait", "checkpoint", "evaluation", "lost_work",
        "recovery", "other"))
    assert parts == pytest.approx(ledger["wall_s"], rel=1e-9)
    assert ledger["productive_s"] > 0 and ledger["startup_s"] > 0 and ledger["complete"]
    assert ledger["cost"] == pytest.approx(ledger["wall_s"])
    log = yard("logs", "a")
    assert "[rank 0] rank 0 of 2 begins with step 1\n" in log
    assert yard("logs", "a", "--rank", 1) == "rank 1 of 2 begins with step 1\n"


def test_the_exit_code_says_how_it_ended(yard):
    for rank_code, code in ((2, 2), (4, 4), (1, 70)):
        name = f"exits-{rank_code}"
        out = yard.run(name, 1, options=["--env", f"BEHAVIOUR=exit_{rank_code}"], code=code)
        assert f"ended with exit code {rank_code}" in out
        assert len(yard.events(name, "attempt_started")) == 1
    yard.run("store", 1, options=["--env", "BEHAVIOUR=exit_6", "--retries", 1], code=6)
    assert len(yard.events("store", "attempt_started")) == 2


def test_a_killed_rank_is_recovered_from_the_last_checkpoint(yard):
    follower = yard.follow("a", ENDLESS,
                           options=["--ranks", 2, "--kill-rank", 1, "--after-step", 15])
    eventually(lambda: yard.has_event("a", "recovered"))
    yard.finish("a")
    out, _ = follower.communicate(timeout=DEADLINE_S)
    assert follower.returncode == 0, out
    assert "killing rank 1 on purpose" in out
    assert "rank 1 was killed by signal 9" in out
    assert "recovered:" in out
    for rank in (0, 1):
        steps = yard.steps("a", rank)
        assert sorted(set(steps)) == list(range(1, max(steps) + 1))
    ledger = yard.describe("a")["ledger"]
    assert ledger["restarts"] == 1
    assert ledger["lost_work_s"] > 0 and ledger["recovery_s"] > 0


def test_a_stopped_job_goes_on_where_it_was(yard):
    yard.run("a", ENDLESS, options=["--ranks", 2, "--detach"])
    yard.wait_for_steps("a", 3)
    assert "job a is stopped" in yard("stop", "a")
    assert yard.describe("a")["state"] == "stopped"
    assert "has ended already" in yard("stop", "a", code=2)
    done = max(yard.steps("a"))
    yard.finish("a")
    assert f"resumed from the checkpoint of step {done}" in yard("run", "--resume", "a")
    assert yard.steps("a") == list(range(1, done + 2))  # nothing redone, nothing skipped
    assert "succeeded" in yard("run", "--resume", "a", code=2)


def test_ctrl_c_stops_cleanly_and_says_how_to_go_on(yard):
    follower = yard.follow("a", ENDLESS)
    yard.wait_for_steps("a", 2)
    follower.send_signal(signal.SIGINT)
    out, _ = follower.communicate(timeout=DEADLINE_S)
    assert follower.returncode == 8, out
    assert "yard run --resume a" in out
    assert yard.describe("a")["state"] == "stopped"


def test_a_second_ctrl_c_kills(yard):
    follower = yard.follow("a", ENDLESS, options=["--env", "BEHAVIOUR=ignore_stop"])
    yard.wait_for_steps("a", 2)
    follower.send_signal(signal.SIGINT)
    eventually(lambda: yard.events("a", "stop_asked"))
    follower.send_signal(signal.SIGINT)
    out, _ = follower.communicate(timeout=DEADLINE_S)
    assert follower.returncode == 8, out
    assert not any(is_running(rank["pid"]) for rank in yard.status("a")["ranks"])


def test_a_job_does_not_notice_that_its_follower_is_closed(yard):
    for number in (signal.SIGHUP, signal.SIGKILL):
        name = f"job-{number.name}"
        follower = yard.follow(name, 100, 0.01)
        yard.wait_for_steps(name, 2)
        os.killpg(follower.pid, number)
        follower.communicate(timeout=DEADLINE_S)
        eventually(lambda: yard.status(name)["state"] == "succeeded")
        assert yard.steps(name) == list(range(1, 101))


def test_a_killed_supervisor_leaves_no_rank_and_the_job_can_go_on(yard):
    yard.run("a", ENDLESS, options=["--ranks", 2, "--detach"])
    yard.wait_for_steps("a", 12)
    status = yard.status("a")
    ranks = [rank["pid"] for rank in status["ranks"]]
    assert len(ranks) == 2 and all(map(is_running, ranks))
    os.kill(status["supervisor"]["pid"], signal.SIGKILL)
    eventually(lambda: not any(map(is_running, ranks)))
    assert "failed" in yard("jobs")
    job = yard.describe("a")
    assert job["state"] == "failed" and "lost" in job["reason"]
    assert yard.status("a")["state"] == "failed"
    yard.finish("a")
    yard("run", "--resume", "a")
    steps = yard.steps("a")
    assert sorted(set(steps)) == list(range(1, max(steps) + 1))
    ledger = yard.describe("a")["ledger"]
    assert ledger["complete"] and ledger["lost_work_s"] > 0


def test_a_follower_sees_that_its_supervisor_was_killed(yard):
    follower = yard.follow("a", ENDLESS)
    yard.wait_for_steps("a", 2)
    os.kill(yard.status("a")["supervisor"]["pid"], signal.SIGKILL)
    out, _ = follower.communicate(timeout=DEADLINE_S)
    assert follower.returncode == 6, out
    assert "lost" in out


TORCH_LIKE = """
import os, mmap, pathlib, signal, sys, time
root = pathlib.Path(os.environ["YARD_OUTPUT_DIR"])
rank, attempt = os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"]
library = root / rank / "libtorch_cpu.so"  # what makes the supervisor keep interpreters ready
library.parent.mkdir(exist_ok=True)
library.write_bytes(bytes(4096))
with open(library) as file:
    mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
print("attempt", attempt, "argv", sys.argv[1:], "pid", os.getpid(), "cwd", os.getcwd(), flush=True)
if attempt == "2":
    sys.exit(0)
time.sleep(600)
"""


def test_a_restart_takes_the_interpreters_that_wait(yard, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(TORCH_LIKE)
    # An interpreter without torch: the imports of those that wait fail at once.
    yard("run", script, "--python", "/usr/bin/python3", "--name", "a", "--detach", "--", "x")
    for attempt in range(2):
        eventually(lambda: (yard.status("a").get("attempt"), yard.status("a").get("spare_count")) == (attempt, 1))
        # The second time it is a rank that runs in one of them: it dies as any other does.
        os.kill(yard.status("a")["ranks"][0]["pid"], signal.SIGKILL)
        eventually(lambda: len(yard.events("a", "relaunched")) == attempt + 1)
    eventually(lambda: yard.status("a")["state"] == "succeeded")
    assert [event["spare_count"] for event in yard.events("a", "relaunched")] == [1, 1]
    assert [event["signal"] for event in yard.events("a", "rank_exited")] == [9, 9, 0]
    pids = yard.events("a", "attempt_started")[2]["pids"]
    lines = yard("logs", "a", "--rank", 0).splitlines()
    assert lines[2] == f"attempt 2 argv ['x'] pid {pids[0]} cwd {lines[0].split(' cwd ')[1]}"


def test_two_jobs_at_once_do_not_disturb_each_other(yard):
    followers = [yard.follow(name, 50, options=["--ranks", 2]) for name in ("a", "b")]
    for follower in followers:
        out, _ = follower.communicate(timeout=DEADLINE_S)
        assert follower.returncode == 0, out
    for name in ("a", "b"):
        assert yard.steps(name) == list(range(1, 51))
    assert [job["name"] for job in json.loads(yard("jobs", "--json"))] in (["a", "b"], ["b", "a"])


def test_logs_follow_until_the_end(yard):
    yard.run("a", 60, options=["--detach"])
    assert "begins with step 1" in yard("logs", "a", "-f")
    assert yard.status("a")["state"] == "succeeded"


def test_the_job_is_told_apart_from_one_that_is_not_there(yard):
    yard.run("emoji", 1)
    assert "did you mean 'emoji'?" in yard("describe", "emojy", code=3)
    for command in (["logs", "emojy"], ["stop", "emojy"], ["run", "--resume", "emojy"]):
        yard(*command, code=3)
    assert "already" in yard.run("emoji", 1, code=2)
    assert "no rank 7" in yard("logs", "emoji", "--rank", 7, code=3)


def test_bad_requests_make_no_job(yard, tmp_path):
    recipe = tmp_path / "r.yaml"
    recipe.write_text("run: {rank: 2}\n")
    assert "did you mean 'ranks'?" in yard("run", recipe, code=2)
    recipe.write_text("run: {ranks: 2}\n")
    assert "key=value" in yard("run", recipe, "stages", code=2)
    recipe.write_text("run: [\n")
    yard("run", recipe, code=2)
    (tmp_path / "notes.txt").write_text("x")
    assert "neither" in yard("run", tmp_path / "notes.txt", code=2)
    yard("run", tmp_path / "missing.py", code=3)
    yard("run", tmp_path / "missing.yaml", code=3)
    yard("run", code=2)
    assert "did you mean 'run'?" in yard("runn", code=2)
    yard.run("a", 1, options=["--ranks", 0], code=2)
    yard.run("a", 1, options=["--ranks", 100000], code=2)
    yard.run("../a", 1, code=2)
    (tmp_path / "file").write_text("x")
    yard.run("a", 1, options=["--output", tmp_path / "file"], code=2)
    assert json.loads(yard("jobs", "--json")) == []
    assert not list((yard.home / "jobs").iterdir())


def test_an_interpreter_that_is_not_there_fails_the_job(yard):
    out = yard("run", SCRIPT, "--python", "/no/such/python", "--name", "a", code=3)
    assert "/no/such/python" in out


def test_a_home_of_a_newer_version_is_left_alone(yard):
    yard("jobs")
    with sqlite3.connect(yard.home / "yard.db") as db:
        db.execute("PRAGMA user_version = 99")
    assert "newer trainyard" in yard("jobs", code=2)


def test_a_home_with_a_damaged_database_says_so(yard):
    yard.home.mkdir()
    (yard.home / "yard.db").write_bytes(b"x" * 5000)
    assert "yard.db" in yard("jobs", code=4)


def test_hosts_are_slices_of_the_machine(yard):
    core = min(os.sched_getaffinity(0))
    yard.home.mkdir()
    (yard.home / "yard.yaml").write_text(f"hosts:\n  - {{name: slice, cores: '{core}'}}\n")
    yard.run("a", 1)
    assert yard.describe("a")["host"] == "slice"
    (yard.home / "yard.yaml").write_text("host: 3\n")
    assert "did you mean 'hosts'?" in yard("jobs", code=2)
