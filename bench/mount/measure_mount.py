#!/usr/bin/env python3
"""`yard mount` beside s3fs, rclone mount and curl, on one server, through one link.

    bench/run mount [--parts sequential,first,small,random,warm,passthrough] [--delays 0,20]
                    [--large-mib 256] [--small-count 400] [--rounds 3]

sequential   one file, 1 MiB at a time; curl gets it by a presigned URL to /dev/null
first        open and read one byte of a file whose directory was listed, in round trips of the link
small        files of 50 KB in the order of their names, by one reader and by 16
random       64 KB reads at random and one of 4 KB: bytes on the wire for each byte read
warm         a file opened and read again, beside the same bytes in a local file
passthrough  a file that is whole in the disk cache, read by the kernel, beside its backing file

Each delay is of the link's each way (delay_proxy.cc), the server is `yard s3 serve` with its files
in memory (--dir). Every figure is of a mount that was just started; a ratio is of the best of
--rounds of each side, taken in turn. Programs that are missing are left out, aloud.
"""

import argparse
import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "storage"))
# pylint: disable=wrong-import-position
from measure import (MIB, delayed, environment, gateway, make_files, process, ratio, s3_client,  # noqa: E402
                     say)

KB = 1000
RANDOM_BYTES = 64 << 10
RCLONE = pathlib.Path(sys.executable).with_name("rclone")
READERS = 16


class CountingProxy:
    """Passes connections on and counts what comes down."""

    def __init__(self, url):
        self.port = int(url.rsplit(":", 1)[1])
        self.bytes_down = 0
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            client, _ = self.listener.accept()
            server = socket.create_connection(("127.0.0.1", self.port))
            for source, sink, down in [(client, server, False), (server, client, True)]:
                threading.Thread(target=self._pump, args=(source, sink, down), daemon=True).start()

    def _pump(self, source, sink, down):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 18):
                if down:
                    self.bytes_down += len(data)
                sink.sendall(data)
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def settled(self):
        """Once nothing has come for a while."""
        before = -1
        while before != self.bytes_down:
            before = self.bytes_down
            time.sleep(0.3)
        return before


# ---- the sides

@contextlib.contextmanager
def unmounted_after(at):
    at.mkdir()
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", at], check=False, stderr=subprocess.DEVNULL)
        at.rmdir()


def wait_for_mount(at, running):
    while not os.path.ismount(at):
        if running.poll() is not None:
            raise RuntimeError(f"no mount: exit code {running.returncode}")
        time.sleep(0.01)


@contextlib.contextmanager
def yard(options, folder, url, keys, *more):
    at = folder / "at"
    command = [options.bin / "yard", "mount", "s3://bucket", at, "--stats", folder / "stats", *more]
    with unmounted_after(at), \
            process(command, env=environment(url, keys), stdout=subprocess.PIPE, text=True) as running:
        running.stdout.readline()
        yield at


@contextlib.contextmanager
def s3fs(_, folder, url, keys):
    at, secret = folder / "at", folder / "secret"
    secret.write_text(f"{keys['AWS_ACCESS_KEY_ID']}:{keys['AWS_SECRET_ACCESS_KEY']}\n")
    secret.chmod(0o600)
    command = ["s3fs", "bucket", at, "-f", "-o",
               f"passwd_file={secret},url={url},use_path_request_style"]
    with unmounted_after(at), process(command, stdout=subprocess.DEVNULL,
                                      stderr=subprocess.DEVNULL) as running:
        wait_for_mount(at, running)
        yield at


@contextlib.contextmanager
def rclone(_, folder, url, keys):
    at = folder / "at"
    env = {**environment(url, keys), "RCLONE_S3_PROVIDER": "Other", "RCLONE_S3_ENDPOINT": url,
           "RCLONE_S3_ENV_AUTH": "true", "RCLONE_CONFIG": os.devnull}
    with unmounted_after(at), process([RCLONE, "mount", ":s3:bucket", at, "--read-only"], env=env,
                                      stderr=subprocess.DEVNULL) as running:
        wait_for_mount(at, running)
        yield at


def sides(options):
    found = {"yard": yard}
    if shutil.which("s3fs"):
        found["s3fs"] = s3fs
    if RCLONE.exists():
        found["rclone"] = rclone
    for name in ("s3fs", "rclone"):
        if name not in found:
            say(f"mount: {name} is not installed; left out")
    return {name: found[name] for name in found if name in options.sides.split(",")}


# ---- what is measured of a mount; each returns seconds

def read_in_order(path):
    start = time.monotonic()
    size = 0
    fd = os.open(path, os.O_RDONLY)
    while piece := os.read(fd, MIB):
        size += len(piece)
    os.close(fd)
    seconds = time.monotonic() - start
    assert size == os.stat(path).st_size
    return seconds


def first_byte(at):
    seconds = []
    for name in random.Random(3).sample(sorted(os.listdir(at / "files")), 20):
        start = time.monotonic()
        fd = os.open(at / "files" / name, os.O_RDONLY)
        assert len(os.read(fd, 1)) == 1
        seconds.append(time.monotonic() - start)
        os.close(fd)
    return statistics.median(seconds)


def read_small(at, readers):
    start = time.monotonic()
    names = sorted(os.listdir(at / "small"))
    left = iter(names)
    lock = threading.Lock()

    def read():
        while True:
            with lock:
                name = next(left, None)
            if name is None:
                return
            with open(at / "small" / name, "rb", buffering=0) as file:
                size = 0
                while piece := file.read(MIB):
                    size += len(piece)
                assert size == 50 * KB

    threads = [threading.Thread(target=read) for _ in range(readers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return (time.monotonic() - start) / len(names)


def curl(folder, url, keys):
    link = s3_client(url, keys).generate_presigned_url(
        "get_object", {"Bucket": "bucket", "Key": "large"})
    start = time.monotonic()
    subprocess.run(["curl", "--silent", "--fail", "--output", "/dev/null", link], check=True)
    del folder
    return time.monotonic() - start


# ---- parts

def in_turn(options, folder, url, keys, name, measure, extra=None):
    """The best of each side."""
    seconds = {}
    for _ in range(options.rounds):
        for side, mount in sides(options).items():
            with mount(options, folder, url, keys) as at:
                seconds.setdefault(side, []).append(measure(at))
        for side, run in (extra or {}).items():
            seconds.setdefault(side, []).append(run(folder, url, keys))
    for side, each in seconds.items():
        say(f"{name}, {side}: {', '.join(f'{s:.4f}' for s in each)} s")
    return {side: min(each) for side, each in seconds.items()}


def against(best, name, peer, goal):
    if peer in best:
        ratio(name, best[peer] / best["yard"], goal)


def measure_sequential(options, folder, url, keys, delay):
    extra = {"curl": curl} if shutil.which("curl") else {}
    best = in_turn(options, folder, url, keys, f"sequential {options.large_mib} MiB at {delay} ms",
                   lambda at: read_in_order(at / "large"), extra)
    for side, seconds in best.items():
        say(f"sequential at {delay} ms, {side}: {options.large_mib / seconds:.0f} MiB/s")
    for peer, goal in [("s3fs", 3), ("rclone", 1), ("curl", 0.8)]:
        against(best, f"mount_vs_{peer}_{delay}ms", peer, goal)


def measure_first(options, folder, url, keys, delay):
    if delay == 0:
        return
    best = in_turn(options, folder, url, keys, f"first byte at {delay} ms", first_byte)
    round_trip = 2 * delay / 1000
    for side, seconds in best.items():
        say(f"first byte at {delay} ms, {side}: {seconds / round_trip:.2f} round trips")
    ratio(f"mount_first_byte_of_1.5_round_trips_{delay}ms", 1.5 * round_trip / best["yard"], 1)


def measure_small(options, folder, url, keys, delay):
    for readers in (1, READERS):
        best = in_turn(options, folder, url, keys, f"50 KB, {readers} readers at {delay} ms, a file",
                       lambda at, readers=readers: read_small(at, readers))
        for side, seconds in best.items():
            say(f"50 KB files, {readers} readers at {delay} ms, {side}: {1 / seconds:.0f} files/s")
        peers = [best[side] for side in best if side != "yard"]
        if readers == 1:
            against(best, f"mount_small_1_reader_vs_rclone_{delay}ms", "rclone", 10 if delay else 1)
        elif peers:
            ratio(f"mount_small_{readers}_readers_vs_best_peer_{delay}ms", min(peers) / best["yard"],
                  1.5 if delay else 1)


def measure_random(options, folder, url, keys, delay):
    if delay != 0:
        return
    for side, mount in sides(options).items():
        proxy = CountingProxy(url)
        with mount(options, folder, proxy.url, keys) as at:
            fd = os.open(at / "large", os.O_RDONLY)
            before = proxy.settled()
            os.pread(fd, 4096, (options.large_mib // 2) * MIB)
            small = proxy.settled() - before
            os.close(fd)
            fd = os.open(at / "large", os.O_RDONLY)
            before = proxy.settled()
            count = 200 if side == "yard" else 20
            blocks = random.Random(4).sample(range(options.large_mib * MIB // RANDOM_BYTES), count)
            for block in blocks:
                assert len(os.pread(fd, RANDOM_BYTES, block * RANDOM_BYTES)) == RANDOM_BYTES
            wire = (proxy.settled() - before) / (count * RANDOM_BYTES)
            os.close(fd)
        say(f"random 64 KB reads, {side}: {wire:.2f} bytes on the wire for each byte read; "
            f"a read of 4 KB: {small / 1024:.1f} KiB")
        if side == "yard":
            ratio("mount_random_of_1.2_wire_bytes", 1.2 / wire, 1)
            ratio("mount_small_read_of_128_kib", (128 << 10) / small, 1)


def measure_warm(options, folder, url, keys, delay):
    if delay != 0:
        return
    local = folder / "local"
    shutil.copy(folder / "served" / "bucket" / "large", local)
    best = {"local file": min(read_in_order(local) for _ in range(options.rounds))}
    local.unlink()
    for side, mount in sides(options).items():
        with mount(options, folder, url, keys) as at:
            read_in_order(at / "large")
            best[side] = min(read_in_order(at / "large") for _ in range(options.rounds))
    for side, seconds in best.items():
        say(f"warm, {side}: {options.large_mib / seconds:.0f} MiB/s")
    ratio("mount_warm_vs_local_file", best["local file"] / best["yard"], 0.5)


def measure_passthrough(options, folder, url, keys, delay):
    if delay != 0:
        return
    more = ["--cache", folder / "cache"]
    with yard(options, folder, url, keys, *more) as at:
        read_in_order(at / "large")
    backing = next((folder / "cache").glob("*.data"))
    with yard(options, folder, url, keys, *more) as at:
        through = min(read_in_order(at / "large") for _ in range(options.rounds))
        time.sleep(1.5)
    stats = json.loads((folder / "stats").read_text())
    direct = min(read_in_order(backing) for _ in range(options.rounds))
    say(f"passthrough: {stats['mount_passthrough_opens']:.0f} of {stats['mount_opens']:.0f} openings, "
        f"{stats['mount_reads']:.0f} reads reached the daemon, "
        f"{options.large_mib / through:.0f} MiB/s, backing file {options.large_mib / direct:.0f} MiB/s")
    ratio("mount_passthrough_vs_backing_file", direct / through, 0.5)
    shutil.rmtree(folder / "cache")


PARTS = {"sequential": measure_sequential, "first": measure_first, "small": measure_small,
         "random": measure_random, "warm": measure_warm, "passthrough": measure_passthrough}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path("build/release/bin"))
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--sides", default="yard,s3fs,rclone")
    parser.add_argument("--delays", default="0,20", help="ms, each way")
    parser.add_argument("--large-mib", type=int, default=256)
    parser.add_argument("--small-count", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dir", default="/dev/shm", help="for the files")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # leaves no files behind either
    options.bin = options.bin.resolve()
    with tempfile.TemporaryDirectory(dir=options.dir, prefix="yard-bench-") as name:
        folder = pathlib.Path(name)
        bucket = folder / "served" / "bucket"
        make_files(bucket / "files", 40, MIB)
        make_files(bucket / "small", options.small_count, 50 * KB)
        make_files(folder / "one", 1, options.large_mib * MIB)
        next((folder / "one").iterdir()).rename(bucket / "large")
        with gateway(options.bin, folder / "served") as (direct_url, keys):
            for delay in map(int, options.delays.split(",")):
                with contextlib.ExitStack() as link:
                    url = direct_url if delay == 0 else link.enter_context(
                        delayed(options.bin, direct_url, delay))
                    for part in options.parts.split(","):
                        PARTS[part](options, folder, url, keys, delay)


if __name__ == "__main__":
    main()
