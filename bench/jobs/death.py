"""SIGKILL of one of two ranks to the next training step, resumed from a checkpoint of every step: `yard run`
beside torchrun --max-restarts at its best setting, the same plain torch script. Both have trained for some
seconds before the death, as jobs have that die: the interpreters that `yard run` keeps for a restart are there."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import common

KILLED_AFTER = 5  # steps, and then SETTLED_SECONDS
SETTLED_SECONDS = 10
SCRIPT = """
import os, pathlib, time
import torch
import torch.distributed as dist
folder = pathlib.Path(os.environ["BENCH_FOLDER"])
kept = folder / "step.pt"
dist.init_process_group("gloo")
rank = dist.get_rank()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
step = torch.load(kept)["step"] if kept.exists() else 0
(folder / f"pid.{rank}").write_text(str(os.getpid()))
while not (folder / "enough").exists():
    model(torch.randn(8, 64)).sum().backward()
    step += 1
    if rank == 0:
        torch.save({"step": step, "model": model.module.state_dict()}, folder / "next.pt")
        os.replace(folder / "next.pt", kept)
        with open(folder / "steps", "a") as out:
            out.write(f"{step} {time.time()}\\n")
    dist.barrier()
    time.sleep(0.02)
    if (folder / "enough").exists():
        break
dist.barrier()
"""


def steps(folder):
    path = folder / "steps"
    return [(int(line.split()[0]), float(line.split()[1])) for line in path.read_text().splitlines()] \
        if path.exists() else []


def measure(command, extra, folder, script):
    script.write_text(SCRIPT)
    process = subprocess.Popen(command, env={**os.environ, **extra, "BENCH_FOLDER": str(folder)},
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        common.poll(lambda: len(steps(folder)) >= KILLED_AFTER, "the first steps")
        time.sleep(SETTLED_SECONDS)
        killed = time.time()
        os.kill(int((folder / "pid.1").read_text()), signal.SIGKILL)
        # A step that rank 0 was in the middle of is not one of the resumed job.
        return common.poll(lambda: next((t for _, t in steps(folder) if t > killed + 0.3), None),
                           "a step after the death") - killed
    finally:
        (folder / "enough").touch()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def main():
    rounds = min(common.arguments().rounds, 3)
    sides = {"yard run": [], "torchrun": []}
    for _ in range(rounds):
        for side, times in sides.items():
            with tempfile.TemporaryDirectory(prefix="yard-bench-") as root:
                folder = pathlib.Path(root)
                script = folder / "train.py"
                ours = [common.BIN / "yard", "run", script, "--ranks", "2", "--python",
                        common.ROOT / ".venv/bin/python"]
                theirs = [common.TORCHRUN, "--standalone", "--nproc_per_node", "2", "--max-restarts", "3",
                          "--monitor-interval", "0.1", script]
                extra = {"YARD_HOME": root + "/home", "OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
                times.append(measure(ours if side == "yard run" else theirs, extra, folder, script))
    print("death: SIGKILL of a rank to the next step")
    for side, times in sides.items():
        common.tell(side, times)
    common.ratio("jobs_death_vs_torchrun", sides["yard run"], sides["torchrun"], 3)


if __name__ == "__main__":
    sys.exit(main())
