"""Predictions of yard-train beside measured runs: the UNet of bench/step (16.8 M parameters).

Every rank has one thread. Steps: `--dry-run` on as many ranks as then train, and `--simulate` of two
ranks from the measure of one; rounds alternate, the median counts. Memory: what --dry-run says of a
rank beside the highest resident memory of the process, from which that of a model of a few values is
taken: code, libtorch's own and the shared memory of a tiny run.
"""

import argparse
import json
import os
import pathlib
import re
import socket
import statistics
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("YARD_BUILD_DIR", ROOT / "build/release"))
RECIPE = ROOT / "bench/step/unet.yaml"
# The same recipe with next to no model.
TINY = ["model.unet.block_out_channels=[8, 8, 8]", "model.unet.norm_num_groups=4", "model.unet.attention_head_dim=1",
        "model.unet.cross_attention_dim=8", "stages.step.resolution=4"]
MODES = ["ddp", "zero1", "zero2", "zero3"]
RUN_SECONDS_MAX = 200
RESIDENT_STEPS = 4


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run_ranks(count, arguments):
    """yard-train on `count` ranks: rank 0's standard output."""
    port, processes = free_port(), []
    for rank in range(count):
        env = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count),
               "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
        processes.append(subprocess.Popen([BUILD / "bin/yard-train", RECIPE, *arguments], env=env, text=True,
                                          stdout=subprocess.PIPE, stderr=subprocess.PIPE))
    outputs = [process.communicate(timeout=RUN_SECONDS_MAX) for process in processes]
    for process, (_, errors) in zip(processes, outputs):
        if process.returncode != 0:
            raise SystemExit(f"yard-train {arguments}: {errors}")
    return outputs[0][0]


def predicted(count, arguments=()):
    """(steps a second, MiB of a rank) by --dry-run."""
    text = run_ranks(count, ["--dry-run", *arguments])
    memory, unit = re.search(r"memory +([\d.]+) (\w+) a rank", text).groups()
    return float(re.search(r"predicted +([\d.e+-]+) it/s", text)[1]), float(memory) * {"KiB": 1 / 1024, "MiB": 1, "GiB": 1024}[unit]


def simulated(count):
    text = run_ranks(1, ["--simulate", f"hosts=1,gpus={count},inside=5GB/s"])
    step = next(line for line in text.splitlines() if line.startswith("step ") and " s" in line)
    return 1 / float(re.findall(r"([\d.e+-]+) s", step)[-1])


def measured(count, arguments=()):
    """Steps a second of a run."""
    with tempfile.TemporaryDirectory() as folder:
        run_ranks(count, [f"output={folder}", *arguments])
        lines = [json.loads(line) for line in pathlib.Path(folder, "metrics.jsonl").read_text().splitlines()]
        seconds = [line["step_s"] for line in lines if line["event"] == "train"][3:]
        return 1 / statistics.median(seconds)


def resident(count, arguments=()):
    """The highest resident MiB of rank 0 while it trains; saving comes after that and takes its own."""
    port, processes = free_port(), []
    with tempfile.TemporaryDirectory() as folder:
        for rank in range(count):
            env = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count),
                   "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
            processes.append(subprocess.Popen([BUILD / "bin/yard-train", RECIPE, f"output={folder}", *arguments],
                                              env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        lines, begin = pathlib.Path(folder, "metrics.jsonl"), time.monotonic()
        while not lines.exists() or lines.read_text().count("\n") < RESIDENT_STEPS:
            if processes[0].poll() is not None or time.monotonic() > begin + RUN_SECONDS_MAX:
                raise SystemExit(f"yard-train {arguments} trained too few steps")
            time.sleep(0.01)
        status = pathlib.Path(f"/proc/{processes[0].pid}/status").read_text()
        for process in processes:
            process.terminate()
            process.wait()
    return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1024


def tell(what, prediction, measure, unit):
    print(f"{what:<28} predicted {prediction:8.3f} {unit}, measured {measure:8.3f} {unit}: "
          f"{100 * (prediction / measure - 1):+.1f} %")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=["speed", "memory"])
    arguments = parser.parse_args()
    if arguments.only != "memory":
        found = {name: [] for name in ("1", "2", "predicted 1", "predicted 2", "simulated 2")}
        for _ in range(arguments.rounds):
            for count in (1, 2):
                found[f"predicted {count}"].append(predicted(count)[0])
                found[f"{count}"].append(measured(count))
            found["simulated 2"].append(simulated(2))
        middle = {name: statistics.median(values) for name, values in found.items()}
        for count in (1, 2):
            tell(f"--dry-run, {count} ranks", middle[f"predicted {count}"], middle[f"{count}"], "it/s")
        tell("--simulate 2 ranks from 1", middle["simulated 2"], middle["2"], "it/s")
    if arguments.only != "speed":
        for mode in MODES:
            how = [f"parallel={{mode: {mode}}}", "stages.step.steps=1000"]
            base = resident(2, [*how, *TINY])
            tell(f"memory of 2 ranks, {mode}", predicted(2, how)[1], resident(2, how) - base, "MiB")


if __name__ == "__main__":
    main()
