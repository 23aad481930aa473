"""Our training step beside diffusers + accelerate: same model, same batch, 2 ranks x 1 thread.

Both sides run in turn, `--rounds` times each, so that other load on the machine meets both. A
side's figure is the median of its rounds' medians over the steps after the warm-up.
"""

import argparse
import json
import os
import pathlib
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BUILD = pathlib.Path(os.environ.get("YARD_BUILD_DIR", ROOT / "build/release"))
RANKS = 2
SIDE_SECONDS_MAX = 180
# Ratio the project wants: peer's milliseconds over ours.
CLAIMS = {"bf16": ("step_vs_accelerate", 1.5), "f32": ("step_f32_vs_accelerate", 1.2)}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def measure_peer(arguments, precision):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += [f"--nproc-per-node={RANKS}", str(HERE / "peer_accelerate.py")]
    command += [f"--precision={precision}", f"--warm-up={arguments.warm_up}"]
    command += [f"--steps={arguments.steps}", f"--ranks={RANKS}", "--batch-per-rank=4"]
    done = subprocess.run(
        command,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=SIDE_SECONDS_MAX,
    )
    if done.returncode != 0:
        sys.exit(f"the peer failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])["median_ms"]


def step_times_ms(heartbeat_path, warm_up):
    """Milliseconds from the end of one step to the end of the next: nothing between is left out."""
    ends = []
    for line in heartbeat_path.read_text().splitlines():
        beat = json.loads(line)
        if beat["event"] == "step":
            ends.append(beat["t"])
    times = [1000 * (after - before) for before, after in zip(ends, ends[1:])]
    return times[warm_up - 1 :]


def start_rank(arguments, rank, port, precision, work):
    command = [str(arguments.bin / "yard-train"), str(HERE / "unet.yaml")]
    command += [f"precision={precision}", f"output={work / 'output'}"]
    command += [f"stages.step.steps={arguments.warm_up + arguments.steps}"]
    env = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(RANKS),
        "LOCAL_WORLD_SIZE": str(RANKS),
        "GROUP_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": "bench-step",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "YARD_HEARTBEAT": str(work / f"rank-{rank}.jsonl"),
    }
    with open(work / f"rank-{rank}.log", "wb") as log:
        return subprocess.Popen(command, env=env, stdout=log, stderr=log)


def measure_ours(arguments, precision):
    work = pathlib.Path(tempfile.mkdtemp(prefix="yard-bench-step-"))
    port = free_port()
    ranks = [start_rank(arguments, rank, port, precision, work) for rank in range(RANKS)]
    try:
        codes = [rank.wait(timeout=SIDE_SECONDS_MAX) for rank in ranks]
        if any(codes):
            logs = "".join((work / f"rank-{rank}.log").read_text() for rank in range(RANKS))
            sys.exit(f"yard-train failed with {codes}:\n{logs[-3000:]}")
        return statistics.median(step_times_ms(work / "rank-0.jsonl", arguments.warm_up))
    finally:
        for rank in ranks:
            if rank.poll() is None:
                rank.kill()
        shutil.rmtree(work, ignore_errors=True)


def compare(arguments, precision):
    ours, peer = [], []
    for _ in range(arguments.rounds):
        peer.append(measure_peer(arguments, precision))
        ours.append(measure_ours(arguments, precision))
    name, goal = CLAIMS[precision]
    rounds = lambda values: " ".join(f"{value:.0f}" for value in values)
    print(f"step {precision}: ours {rounds(ours)} ms, diffusers + accelerate {rounds(peer)} ms", flush=True)
    print(f"RATIO {name} {statistics.median(peer) / statistics.median(ours):.2f} {goal}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", type=pathlib.Path, default=BUILD / "bin")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm-up", type=int, default=4)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--precision", choices=sorted(CLAIMS), action="append")
    arguments = parser.parse_args()
    print("step: UNet 16.84 M parameters, latents 4x32x32, global batch 8, AdamW, 2 ranks x 1 thread")
    for precision in arguments.precision or ["bf16", "f32"]:
        compare(arguments, precision)


if __name__ == "__main__":
    main()
