"""Runs train.py with each backend in turn, and compares what communication adds to a step."""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
BUILD = pathlib.Path(os.environ.get("YARD_BUILD_DIR", HERE / "../../build/release")).resolve()


def run(backend, precision, arguments):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(arguments.ranks),
               HERE / "train.py", backend, precision, str(arguments.steps)]
    path = os.pathsep.join(filter(None, [str(BUILD / "python"), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True,
                          env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path})
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=14, help="of each kind, in each round")
    parser.add_argument("--precision", choices=["f32", "bf16"], action="append")
    arguments = parser.parse_args()
    for precision in arguments.precision or ("f32", "bf16"):
        shares = {"yard": [], "gloo": []}
        for _ in range(arguments.rounds):
            for backend in shares:
                figures = run(backend, precision, arguments)
                shares[backend].append(figures["added_ms"] / figures["with_ms"])
                print(f"ddp {precision} {backend}: {figures['with_ms']:.1f} ms a step, "
                      f"{figures['added_ms']:.1f} ms of it communication ({100 * shares[backend][-1]:.1f} %), "
                      f"{figures['megabytes']:.0f} MB of gradients", flush=True)
        ours, theirs = (statistics.median(shares[backend]) for backend in ("yard", "gloo"))
        # A share of nothing, or less, is the noise of the steps themselves: at best one in a thousand.
        print(f"RATIO ddp_communication_share_{precision} {theirs / max(ours, 0.001):.2f} 2.0", flush=True)


if __name__ == "__main__":
    main()
