"""yard shards pack beside webdataset's ShardWriter and GNU tar, in turn, on the same files.

    measure.py SRC WORK ROUNDS

SRC is a folder of jpg + txt + json samples; WORK a folder on the same disk. Every round packs into
a fresh folder and removes it again. Ours makes index and CRC-32C on the way and syncs its shards to
the disk before it ends; the peers do neither, which is told, not corrected.
"""

import hashlib
import json
import os
import pathlib
import resource
import shutil
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("YARD_BUILD_DIR", ROOT / "build/release"))
PYTHON = ROOT / ".venv/bin/python"


def timed(command):
    """(wall, CPU) seconds of a program and its children, and what it printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.monotonic()
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=True)
    wall = time.monotonic() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, cpu, done.stdout


def digest(folder):
    sums = [hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.glob("*.tar"))]
    return " ".join(sums)


def main():
    source, work, rounds = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), int(sys.argv[3])
    size = sum(p.stat().st_size for p in source.iterdir())
    samples = len({p.name.partition(".")[0] for p in source.iterdir()})
    out = work / "out"
    contestants = {
        "yard": [BUILD / "bin/yard", "shards", "pack", source, out, "--missing-caption", "skip"],
        "ShardWriter": [PYTHON, ROOT / "bench/pack/peer_shardwriter.py", source, out],
        "ShardWriter, 2 processes": [PYTHON, ROOT / "bench/pack/peer_shardwriter.py", source, out, 2],
        "GNU tar": ["tar", "-cf", out / "all.tar", "-C", source, "."],
    }
    walls = {name: [] for name in contestants}
    cpus = {name: [] for name in contestants}
    digests = set()
    for _ in range(rounds):
        for name, command in contestants.items():
            shutil.rmtree(out, ignore_errors=True)
            if name == "GNU tar":
                out.mkdir()
            wall, cpu, printed = timed(command)
            if name.startswith("ShardWriter"):  # without starting Python
                wall, cpu = (float(word) for word in printed.split()[:2])
            walls[name].append(wall)
            cpus[name].append(cpu)
            if name == "yard":
                digests.add(digest(out))
    subprocess.run([BUILD / "bin/yard", "--version"], check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(out, ignore_errors=True)
    gigabytes = size / 1e9
    for name in contestants:
        rates = sorted(samples / w for w in walls[name])
        print(
            f"{name}: best {rates[-1]:.0f}, median {statistics.median(rates):.0f} samples/s; "
            f"{statistics.median(cpus[name]) / gigabytes:.2f} CPU-s/GB"
        )
    rate = {name: statistics.median(samples / w for w in walls[name]) for name in contestants}
    cost = {name: statistics.median(cpus[name]) for name in contestants}
    print(json.dumps({"samples": samples, "bytes": size, "walls": walls, "cpus": cpus}))
    print(f"pack: {rounds} rounds gave {len(digests)} kind(s) of bytes")
    print(f"RATIO pack_vs_shardwriter {rate['yard'] / rate['ShardWriter']:.2f} 8")
    print(f"RATIO pack_vs_shardwriter_2_processes {rate['yard'] / rate['ShardWriter, 2 processes']:.2f} 4")
    print(f"RATIO pack_cpu_vs_gnu_tar {cost['GNU tar'] / cost['yard']:.2f} 1")
    print(f"RATIO pack_reproducible {1 if len(digests) == 1 else 0} 1")


if __name__ == "__main__":
    main()
