"""Hosts of platform jobs, each from its plan.json, against a real store: what CONTROL does, by hand."""

import io
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time

import boto3
import botocore.config
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("YARD_BIN_DIR", ROOT / "build/release/bin"))
WAIT_SECONDS = 120  # only a failure comes near it


def needs_sandbox():
    """Skips, saying why, where no sandbox can be made."""
    if os.geteuid() != 0:
        pytest.skip("NOT TESTED: networks of their own need root")
    for program in ["bwrap", "ip", "nsenter"]:
        if shutil.which(program) is None:
            pytest.skip(f"NOT TESTED: {program} is not installed")
    tried = subprocess.run(["bwrap", "--unshare-pid", "--ro-bind", "/", "/", "true"], capture_output=True)
    if tried.returncode != 0:
        pytest.skip(f"NOT TESTED: no sandbox here: {tried.stderr.decode()}")


def is_alive(pid):
    """A zombie that nobody has reaped is not."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


class Store:
    """A folder served by `yard s3 serve`, with one bucket."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        (self.folder / "bucket").mkdir(parents=True)
        self.process = subprocess.Popen(
            [BIN / "yard", "s3", "serve", self.folder, "--listen", "127.0.0.1:0"],
            stdout=subprocess.PIPE, text=True)
        timer = threading.Timer(WAIT_SECONDS, self.process.kill)
        timer.start()
        line = self.process.stdout.readline()
        timer.cancel()
        self.url = re.search(r"at (https?://\S+?);", line).group(1)
        text = subprocess.run([BIN / "yard", "s3", "env", self.folder], check=True, capture_output=True,
                              text=True).stdout
        self.keys = {name: re.search(rf"{name}='?([^'\n]+)", text).group(1)
                     for name in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"]}
        self.s3 = boto3.session.Session().client(
            "s3", endpoint_url=self.url, region_name="us-east-1",
            aws_access_key_id=self.keys["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=self.keys["AWS_SECRET_ACCESS_KEY"],
            config=botocore.config.Config(retries={"total_max_attempts": 2}))

    def put(self, key, content):
        self.s3.put_object(Bucket="bucket", Key=key, Body=content)

    def get(self, key):
        return self.s3.get_object(Bucket="bucket", Key=key)["Body"].read()

    def keys_under(self, prefix):
        listed = self.s3.list_objects_v2(Bucket="bucket", Prefix=prefix)
        return [item["Key"] for item in listed.get("Contents", [])]

    def put_source(self, key, files):
        """sourcedir.tar.gz of {name: text or bytes}."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as tar:
            for name, text in files.items():
                content = text if isinstance(text, bytes) else text.encode()
                info = tarfile.TarInfo(name)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
        self.put(key, packed.getvalue())
        return f"s3://bucket/{key}"

    def archive(self, key):
        """{name: bytes} of a tar.gz in the store."""
        with tarfile.open(fileobj=io.BytesIO(self.get(key)), mode="r:gz") as tar:
            return {entry.name: tar.extractfile(entry).read() for entry in tar if entry.isfile()}

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(WAIT_SECONDS)
        self.process.stdout.close()


class Job:
    """The folder of a job with one or more hosts on this machine."""

    def __init__(self, folder, store, name, hosts=1, **plan):
        self.folder = pathlib.Path(folder)
        self.store = store
        self.name = name
        self.hosts = [f"algo-{i + 1}" for i in range(hosts)]
        self.plan = plan
        for host in self.hosts:
            self.dir(host).mkdir(parents=True)
            (self.dir(host) / "plan.json").write_text(json.dumps(self.plan_of(host)))

    def dir(self, host="algo-1"):
        return self.folder / "hosts" / host

    def plan_of(self, host):
        plan = {
            "version": 1, "kind": "training", "job": self.name, "region": "us-east-1",
            "arn": f"arn:aws:sagemaker:us-east-1:123456789012:training-job/{self.name}",
            "host": host, "hosts": [{"name": name, "instance_type": "ml.local"} for name in self.hosts],
            "runtime": {"python": sys.prefix}, "output": {"s3_uri": "s3://bucket/out"},
            "store": {"endpoint": self.store.url, "region": "us-east-1"},
            "log_dir": str(self.folder / "logs"), "stop_grace_s": 20,
        }
        if host == "algo-1":
            plan["model_dirs"] = [str(self.dir(name) / "ml/model") for name in self.hosts]
            plan["output_dirs"] = [str(self.dir(name) / "ml/output/data") for name in self.hosts]
        return {**plan, **self.plan}

    def start(self):
        for host in self.hosts:
            env = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), **self.store.keys}
            done = subprocess.run([BIN / "yard", "host", self.dir(host)], env=env, capture_output=True,
                                  text=True, timeout=WAIT_SECONDS)
            assert done.stdout.startswith("ready "), (done.stdout, done.stderr)
        return self

    def status(self, host="algo-1"):
        return json.loads((self.dir(host) / "status.json").read_text())

    def pid(self, host="algo-1"):
        return self.status(host)["supervisor"]["pid"]

    def tell(self, word, host=None):
        for name in [host] if host else self.hosts:
            with open(self.dir(name) / "control", "w") as control:
                control.write(word + "\n")

    def wait(self, phase, hosts=None):
        deadline = time.monotonic() + WAIT_SECONDS
        for host in hosts or self.hosts:
            while phase not in [item["phase"] for item in self.status(host)["phases"]]:
                assert time.monotonic() < deadline, f"{host}: {self.status(host)}\n{self.all_text()}"
                time.sleep(0.02)
        return self.status((hosts or self.hosts)[0])

    def wait_for_line(self, text, host="algo-1"):
        deadline = time.monotonic() + WAIT_SECONDS
        while text not in "\n".join(self.log(host)):
            assert time.monotonic() < deadline, f"no '{text}' in:\n{self.all_text()}"
            time.sleep(0.02)

    def run(self):
        """To the end: the status of algo-1."""
        self.start()
        self.wait("finished")
        self.tell("upload")
        self.wait("ended")
        self.wait_for_exit()
        return self.status()

    def wait_for_exit(self):
        deadline = time.monotonic() + WAIT_SECONDS
        for host in self.hosts:
            while is_alive(self.pid(host)):
                assert time.monotonic() < deadline
                time.sleep(0.02)

    def log(self, host="algo-1"):
        """Its lines, without their times."""
        lines = []
        logs = self.folder / "logs"
        for path in sorted(logs.glob(f"{host}.log.*")) + [logs / f"{host}.log"]:
            if path.exists():
                lines += path.read_bytes().decode(errors="replace").splitlines()
        return [line.partition(" ")[2] for line in lines]

    def all_text(self):
        parts = []
        for host in self.hosts:
            parts += [f"--- {host}", *self.log(host)[-40:]]
            supervisor = self.dir(host) / "supervisor.log"
            parts.append(supervisor.read_text()[-3000:] if supervisor.exists() else "")
        return "\n".join(parts)

    def release(self):
        """Whatever it does: nothing stays."""
        for host in self.hosts:
            if not (self.dir(host) / "status.json").exists() or not is_alive(self.pid(host)):
                continue
            if self.status(host)["phase"] != "ended":
                self.tell("release", host)
        for host in self.hosts:
            if (self.dir(host) / "status.json").exists():
                self.wait_for_exit()
