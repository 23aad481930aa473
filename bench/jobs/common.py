"""What the parts of this bench share: a platform, jobs of a script, and how figures are told."""

import argparse
import contextlib
import pathlib
import statistics
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/clients"))

from platform_served import platform_at, smallest_job  # noqa: E402, F401
from test_sagemaker_jobs import log_lines, start, upload_source, wait_for, wait_for_end  # noqa: E402, F401

from served import BIN  # noqa: E402, F401

TORCHRUN = ROOT / ".venv/bin/torchrun"


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=100)
    return parser.parse_args()


@contextlib.contextmanager
def platform(config=""):
    with tempfile.TemporaryDirectory(prefix="yard-bench-") as home:
        (pathlib.Path(home) / "yard.yaml").write_text(config)
        with platform_at(home, "--python", str(ROOT / ".venv")) as running:
            yield running


def tell(name, seconds):
    print(f"{name:<36} median {1000 * statistics.median(seconds):8.1f} ms   each",
          " ".join(f"{1000 * each:.0f}" for each in seconds), flush=True)


def ratio(name, ours, peers, goal):
    print(f"RATIO {name} {statistics.median(peers) / statistics.median(ours):.2f} {goal}", flush=True)


def poll(condition, what, seconds=120):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, f"{what}: not within {seconds} s"
        time.sleep(0.01)
    return found
