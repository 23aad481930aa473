"""Shards of small pictures, written by Python's own tarfile, and scripts run beside the tests."""

import io
import os
import pathlib
import signal
import subprocess
import sys
import tarfile
import textwrap

import numpy
from PIL import Image

ROOT = pathlib.Path(__file__).resolve().parents[2]
YARD = pathlib.Path(os.environ.get("YARD_BIN_DIR", ROOT / "build/release/bin")) / "yard"
PACKAGE_DIR = pathlib.Path(os.environ.get("YARD_PYTHON_DIR", ROOT / "build/release/python"))
WAIT_SECONDS = 120  # only a failure comes near it


def pixels(number, size=(50, 40)):
    """Smooth, so that JPEG keeps them nearly."""
    width, height = size
    x, y = numpy.meshgrid(numpy.arange(width), numpy.arange(height))
    channels = [(x * 5 + number * 37) % 256, (y * 6 + number * 11) % 256, (x + y + number) % 256]
    return numpy.stack(channels, axis=-1).astype("uint8")


def picture(number, size=(50, 40), kind="jpeg"):
    out = io.BytesIO()
    Image.fromarray(pixels(number, size)).save(out, kind)
    return out.getvalue()


def write_shard(path, samples):
    """samples: (key, {extension: bytes})."""
    with tarfile.open(path, "w") as tar:
        for key, members in samples:
            for extension, content in members.items():
                entry = tarfile.TarInfo(f"{key}.{extension}")
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))


def write_shards(folder, count, per_shard, size=(50, 40), kind="jpeg", prefix="s"):
    extension = {"jpeg": "jpg"}.get(kind, kind)
    for begin in range(0, count, per_shard):
        samples = [(f"{i:06d}", {extension: picture(i, size, kind), "txt": f"caption {i}".encode()})
                   for i in range(begin, min(count, begin + per_shard))]
        write_shard(folder / f"{prefix}-{begin // per_shard:06d}.tar", samples)
    return folder


def write_index(folder):
    if YARD.exists():
        subprocess.run([YARD, "shards", "index", folder], check=True, capture_output=True, timeout=WAIT_SECONDS)


def script_environment(**variables):
    """Nothing of a launcher that runs these tests."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("RANK", "WORLD_SIZE", "SLURM_"))}
    return {**kept, "PYTHONPATH": f"{PACKAGE_DIR}{os.pathsep}{pathlib.Path(__file__).parent}",
            **{k: str(v) for k, v in variables.items()}}


def start_script(text, *arguments, **variables):
    command = [sys.executable, "-c", textwrap.dedent(text), *map(str, arguments)]
    # A shell's background jobs ignore Ctrl-C, and so would Python, if we are one.
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env=script_environment(**variables),
                            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))


def run_script(text, *arguments, **variables):
    process = start_script(text, *arguments, **variables)
    out, err = process.communicate(timeout=WAIT_SECONDS)
    assert process.returncode == 0, err
    return out
