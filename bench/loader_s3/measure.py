#!/usr/bin/env python3
"""The loader over `yard s3 serve` through a link with latency, and on the same shards in a folder.

Each side decodes to 256 px in batches of 32, in turn; then a consumer takes 0.8 of the rate over S3,
and the share of the time that it waits is told. The server and the link run on the same machine, so
one core is left to them and to the loader's requests: it decodes on cores - 1 threads. The rates on
all cores, where the server takes part of the decoding's time, are printed too.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "storage"))
from measure import MIB, delayed, environment, gateway, ratio, say  # noqa: E402


def run(program, url, *flags, env=None):
    """(samples per second, share of time waited, peak MiB, the loader's own words)"""
    done = subprocess.run([str(program), str(url), *map(str, flags)], env=env, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    figures, words = done.stdout.strip().splitlines()
    numbers = figures.split()
    return float(numbers[1]), float(numbers[3]), int(numbers[5]), words


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build/release"))
    parser.add_argument("--corpus", type=pathlib.Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--delay-ms", type=float, default=20)
    parser.add_argument("--read-ahead", type=int, default=1024, help="MiB")
    parser.add_argument("--batches", type=int, default=200)
    options = parser.parse_args()
    # Two folders deep, for programs of the build lie where CMake puts them.
    program = next(options.build.rglob("loader_bench"))
    tools = next(options.build.rglob("delay_proxy")).parent
    flags = ["--read-ahead", options.read_ahead * MIB, "--batches", options.batches]
    with gateway(options.build.resolve() / "bin", options.corpus) as (direct_url, keys), \
            delayed(tools, direct_url, options.delay_ms) as url:
        env = environment(url, keys)
        for threads in [os.cpu_count(), max(1, os.cpu_count() - 1)]:
            local, remote = [], []
            for _ in range(options.rounds):
                local.append(run(program, options.corpus / "shards", *flags, "--threads", threads))
                remote.append(run(program, "s3://shards", *flags, "--threads", threads, env=env))
            rates = [statistics.median(each[0] for each in side) for side in (local, remote)]
            say(f"loader with {threads} threads, samples/s: local {[each[0] for each in local]}, over S3 at "
                f"{options.delay_ms:g} ms {[each[0] for each in remote]}: {rates[1] / rates[0]:.2f}")
        say(f"over S3: {remote[-1][3]}; peak memory {max(each[2] for each in remote)} MiB, "
            f"read-ahead up to {options.read_ahead} MiB")
        ratio("loader_s3_vs_local", rates[1] / rates[0], 0.95)
        paced = ["--threads", threads, "--rate", 0.8 * rates[1]]
        waits, busy = ([run(program, "s3://shards", *flags, *paced, *how, env=env)[1] for _ in range(options.rounds)]
                       for how in ([], ["--busy"]))
        say(f"a consumer of 0.8 of that rate waits {', '.join(f'{wait:.2%}' for wait in waits)} of its time")
        say(f"one that computes instead of sleeping, on the core of the server and the link: "
            f"{', '.join(f'{wait:.2%}' for wait in busy)}")
        say(f"RATIO loader_s3_wait_share {statistics.median(waits):.4f} 0.01 (no more than)")


if __name__ == "__main__":
    main()
