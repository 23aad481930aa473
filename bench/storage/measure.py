#!/usr/bin/env python3
"""Our S3 server beside nginx, and our S3 client beside boto3, the AWS CLI and curl.

    bench/run storage [--parts gateway,download,upload] [--large 16x256] [--small 1000x50]
                      [--delay-ms 20] [--rounds 3] [--memory 256MiB]

gateway   GETs by a load generator of our own, over kept connections, of the same files: from nginx
          by their path, from `yard s3 serve` by signed requests.
download, upload
          through a link of --delay-ms each way (delay_proxy.cc), from and to `yard s3 serve`, files
          in memory (--dir). boto3 is its transfer manager at the best of several concurrencies.
          curl runs in parallel on presigned URLs, without checksums.

Every side runs --rounds times, in turn; a ratio is of the best of each. Programs that are missing
are left out, aloud.
"""

import argparse
import contextlib
import os
import pathlib
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import boto3
import botocore.auth
import botocore.awsrequest
import botocore.config
import botocore.credentials

MIB = 1 << 20
AWS = pathlib.Path(sys.executable).with_name("aws")
PEER = pathlib.Path(__file__).with_name("peer_boto3.py")
BOTO3_CONCURRENCIES = [10, 32, 64]
CURL_AT_ONCE = {"large": 16, "small": 128}
CONNECTIONS = [1, 4, 16]
LOAD_SECONDS = 3


def say(text):
    print(text, flush=True)


def ratio(name, value, goal):
    say(f"RATIO {name} {value:.2f} {goal}")


def count_and_size(text, unit):
    count, size = text.split("x")
    return int(count), int(size) * unit


def make_files(folder, count, size):
    """Files of different content that does not compress."""
    folder.mkdir(parents=True)
    block = os.urandom(min(size, 16 * MIB))
    for number in range(count):
        with open(folder / f"{number:05}.bin", "wb") as file:
            left = size
            while left > 0:
                piece = block[number % 1000:][:left]
                file.write(piece)
                left -= len(piece)


@contextlib.contextmanager
def process(command, **options):
    with subprocess.Popen(list(map(str, command)), **options) as running:
        try:
            yield running
        finally:
            running.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                running.wait(10)
            running.kill()


@contextlib.contextmanager
def gateway(bin_dir, folder):
    """The URL and the keys of a served folder."""
    command = [bin_dir / "yard", "s3", "serve", folder, "--listen", "127.0.0.1:0"]
    with process(command, stdout=subprocess.PIPE, text=True) as running:
        url = re.search(r"at (http://\S+?);", running.stdout.readline()).group(1)
        exports = subprocess.run([bin_dir / "yard", "s3", "env", folder], check=True,
                                 capture_output=True, text=True).stdout
        words = [shlex.split(line)[-1] for line in exports.splitlines() if line.startswith("export")]
        keys = {name: value for name, value in (word.split("=", 1) for word in words)
                if name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
        yield url, keys


@contextlib.contextmanager
def delayed(bin_dir, url, delay_ms):
    command = [bin_dir / "delay_proxy", url.rsplit(":", 1)[1], delay_ms]
    with process(command, stdout=subprocess.PIPE, text=True) as running:
        yield f"http://127.0.0.1:{int(running.stdout.readline())}"


def environment(url, keys):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return {**kept, **keys, "AWS_ENDPOINT_URL": url, "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": os.devnull}


def s3_client(url, keys):
    return boto3.client("s3", endpoint_url=url, region_name="us-east-1",
                        aws_access_key_id=keys["AWS_ACCESS_KEY_ID"],
                        aws_secret_access_key=keys["AWS_SECRET_ACCESS_KEY"],
                        config=botocore.config.Config(s3={"addressing_style": "path"}))


# ---- the server

def signed_line(url, keys, path):
    """A target and its headers for http_load; the signature is good for 15 minutes."""
    request = botocore.awsrequest.AWSRequest("GET", url + path)
    credentials = botocore.credentials.Credentials(keys["AWS_ACCESS_KEY_ID"],
                                                   keys["AWS_SECRET_ACCESS_KEY"])
    botocore.auth.S3SigV4Auth(credentials, "s3", "us-east-1").add_auth(request)
    headers = "|".join(f"{name}: {value}" for name, value in request.headers.items())
    return f"{path}\t{headers}"


def load(bin_dir, port, connections, lines):
    done = subprocess.run([bin_dir / "http_load", str(port), str(connections), str(LOAD_SECONDS)],
                          input="\n".join(lines) + "\n", capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    return tuple(map(float, done.stdout.split()))


NGINX_CONF = """
{user} daemon off; worker_processes auto; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
  access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000000;
  client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c;
  uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;
  server {{ listen 127.0.0.1:{port}; root {root}; }}
}}
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def nginx(program, root, folder):
    port = free_port()
    folder.mkdir()
    (folder / "nginx.conf").write_text(NGINX_CONF.format(
        folder=folder, port=port, root=root,
        # Else root's workers become another user, who may not read the files.
        user="user root root;" if os.geteuid() == 0 else ""))
    with process([program, "-p", folder, "-c", folder / "nginx.conf"],
                 stderr=subprocess.DEVNULL) as running:
        time.sleep(1)
        if running.poll() is not None:
            raise RuntimeError((folder / "error.log").read_text())
        yield port


def measure_gateway(options, folder):
    program = options.nginx or shutil.which("nginx")
    if not program:
        say("gateway: nginx is not installed; left out (apt-get install nginx-light)")
        return
    served = folder / "served"
    make_files(served / "bucket" / "large", 4, options.large[1])
    make_files(served / "bucket" / "small", 200, 16 << 10)
    with gateway(options.bin, served) as (url, keys), \
            nginx(program, served, folder / "nginx") as nginx_port:
        port = int(url.rsplit(":", 1)[1])
        for kind, figure, unit, scale, goal in [("large", 0, "MB/s", 1e6, 0.8),
                                                ("small", 1, "requests/s", 1, 0.5)]:
            paths = [f"/bucket/{kind}/{path.name}"
                     for path in sorted((served / "bucket" / kind).iterdir())]
            lines = [signed_line(url, keys, path) for path in paths]
            for connections in CONNECTIONS:
                ours, theirs = [], []
                for _ in range(options.rounds):
                    theirs.append(load(options.bin, nginx_port, connections, paths)[figure] / scale)
                    ours.append(load(options.bin, port, connections, lines)[figure] / scale)
                say(f"gateway {kind} objects, {connections} connections, {unit}: "
                    f"ours {ours}, nginx {theirs}")
                ratio(f"gateway_{kind}_{connections}_vs_nginx", max(ours) / max(theirs), goal)


# ---- the client

def timed(command, **options):
    start = time.monotonic()
    done = subprocess.run(list(map(str, command)), stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, text=True, **options)
    if done.returncode != 0:
        raise RuntimeError(f"{command}: {done.stderr[-2000:]}")
    return time.monotonic() - start


def curl_config(client, kind, names, folder, upload):
    """Presigned URLs, one for each file."""
    lines = []
    for name in names:
        if upload:
            url = client.generate_presigned_url(
                "put_object", {"Bucket": "bucket", "Key": f"up-curl/{kind}/{name}"})
            lines += [f'url = "{url}"', f'upload-file = "{folder / kind / name}"']
        else:
            url = client.generate_presigned_url(
                "get_object", {"Bucket": "bucket", "Key": f"{kind}/{name}"})
            lines += [f'url = "{url}"', f'output = "{folder / name}"']
        lines.append("next")
    return "\n".join(lines[:-1])


def sides(options, url, keys, kind, direction, sources, names):
    """(name, run): each run gets a fresh folder for what it downloads."""
    env = environment(url, keys)
    upload = direction == "upload"

    def ours(target):
        arguments = [sources / kind, f"s3://bucket/up-yard/{kind}"] if upload \
            else [f"s3://bucket/{kind}", target]
        return timed([options.bin / "yard", "cp", "-q", "-r", "--memory", options.memory, *arguments],
                     env=env)

    def boto3_at(concurrency):
        def run(target):
            return timed([sys.executable, PEER, direction, "bucket", kind,
                          sources / kind if upload else target, str(concurrency)], env=env)
        return run

    def awscli(target):
        arguments = [sources / kind, f"s3://bucket/up-aws/{kind}"] if upload \
            else [f"s3://bucket/{kind}", target]
        return timed([AWS, "s3", "cp", "--recursive", "--only-show-errors", *arguments], env=env)

    def curl(target):
        config = target.parent / "curl.conf"
        config.write_text(curl_config(s3_client(url, keys), kind, names,
                                      sources if upload else target, upload))
        target.mkdir(exist_ok=True)
        return timed(["curl", "--silent", "--fail", "--parallel", "--parallel-immediate",
                      "--parallel-max", CURL_AT_ONCE[kind], "--config", config])

    yield "yard", ours
    for concurrency in BOTO3_CONCURRENCIES:
        yield f"boto3 with {concurrency} threads", boto3_at(concurrency)
    if AWS.exists():
        yield "awscli", awscli
    else:
        say("client: the AWS CLI is not installed; left out")
    if shutil.which("curl"):
        yield "curl", curl
    else:
        say("client: curl is not installed; left out")


def check_download(source, target, names):
    for name in names:
        with open(source / name, "rb") as a, open(target / name, "rb") as b:
            while piece := a.read(8 * MIB):
                assert piece == b.read(8 * MIB), name
            assert not b.read(1), name


def measure_client(options, folder, direction):
    served, sources = folder / "served", folder / "sources"
    # A download's files lie in the bucket, an upload's beside it.
    where = sources if direction == "upload" else served / "bucket"
    (served / "bucket").mkdir(parents=True)
    for kind in ["large", "small"]:
        make_files(where / kind, *getattr(options, kind))
    with gateway(options.bin, served) as (direct_url, keys), \
            delayed(options.bin, direct_url, options.delay_ms) as url:
        for kind in ["large", "small"]:
            names = sorted(path.name for path in (where / kind).iterdir())
            size = sum(path.stat().st_size for path in (where / kind).iterdir())
            seconds = {}
            for _ in range(options.rounds):
                for name, run in sides(options, url, keys, kind, direction, sources, names):
                    target = folder / "down" / "files"
                    target.parent.mkdir()
                    seconds.setdefault(name, []).append(run(target))
                    if direction == "download":
                        check_download(where / kind, target, names)
                    shutil.rmtree(target.parent)
                    for leftover in (served / "bucket").glob("up-*"):
                        shutil.rmtree(leftover)
            for name, each in seconds.items():
                say(f"{direction} {kind}, {len(names)} objects, {size / MIB:.0f} MiB, {name}: "
                    f"{', '.join(f'{s:.2f}' for s in each)} s, "
                    f"{size / MIB / min(each):.0f} MiB/s at best")
            print_ratios(direction, kind, {name: min(each) for name, each in seconds.items()})


def print_ratios(direction, kind, best):
    ours = best.pop("yard")
    boto3_best = min(seconds for name, seconds in best.items() if name.startswith("boto3"))
    if kind == "large":
        ratio(f"{direction}_vs_boto3", boto3_best / ours, 1.5)
        if "awscli" in best:
            ratio(f"{direction}_vs_awscli", best["awscli"] / ours, 5)
        if "curl" in best:
            ratio(f"{direction}_vs_curl", best["curl"] / ours, 0.9)
        return
    clients = [boto3_best] + ([best["awscli"]] if "awscli" in best else [])
    ratio(f"{direction}_small_vs_fastest_s3_client", min(clients) / ours, 3)
    if "curl" in best:
        ratio(f"{direction}_small_vs_curl", best["curl"] / ours, 0.9)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path("build/release/bin"))
    parser.add_argument("--parts", default="gateway,download,upload")
    parser.add_argument("--large", default="16x256", help="objects x MiB")
    parser.add_argument("--small", default="1000x50", help="objects x KB")
    parser.add_argument("--delay-ms", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", default="256MiB", help="of yard's buffers")
    parser.add_argument("--dir", default="/dev/shm", help="for the files; twice their size")
    parser.add_argument("--nginx", help="its program, where it is not in the PATH")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # leaves no files behind either
    options.bin = options.bin.resolve()
    options.large = count_and_size(options.large, MIB)
    options.small = count_and_size(options.small, 1000)
    say(f"storage: memory of yard's buffers {options.memory}, "
        f"link of {options.delay_ms:g} ms each way")
    for part in options.parts.split(","):
        with tempfile.TemporaryDirectory(dir=options.dir, prefix="yard-bench-") as folder:
            if part == "gateway":
                measure_gateway(options, pathlib.Path(folder))
            else:
                measure_client(options, pathlib.Path(folder), part)


if __name__ == "__main__":
    main()
