"""S3 servers of other people, and our own, each with one bucket "bucket"; and a proxy that holds a
transfer still, so that a test can break it off."""

import contextlib
import os
import pathlib
import socket
import subprocess
import sys
import threading
import time
import urllib.request

import boto3
import botocore.config

from served import BIN, WAIT_SECONDS, Served

ACCESS_KEY, SECRET_KEY = "AKYARDTEST", "secret-of-the-test"
TOOLS = pathlib.Path(sys.executable).parent


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """Where it is and with which keys."""

    def __init__(self, name, url, access_key=ACCESS_KEY, secret_key=SECRET_KEY):
        self.name = name
        self.url = url
        self.keys = {"AWS_ACCESS_KEY_ID": access_key, "AWS_SECRET_ACCESS_KEY": secret_key}

    def client(self):
        return boto3.session.Session().client(
            "s3", endpoint_url=self.url, region_name="us-east-1",
            aws_access_key_id=self.keys["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=self.keys["AWS_SECRET_ACCESS_KEY"],
            config=botocore.config.Config(s3={"addressing_style": "path"}))

    def environment(self, **changes):
        """Nothing of the person's own settings."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        return {**kept, **self.keys, "AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": self.url,
                "AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
                "AWS_EC2_METADATA_DISABLED": "true", **changes}

    def yard(self, *arguments, code=0, **changes):
        """What it printed; text of both streams where it failed."""
        done = subprocess.run([BIN / "yard", *map(str, arguments)], env=self.environment(**changes),
                              capture_output=True, timeout=WAIT_SECONDS)
        text = done.stdout.decode("utf-8", "surrogateescape")
        errors = done.stderr.decode("utf-8", "surrogateescape")
        assert done.returncode == code, f"exit code {done.returncode}\n{text}{errors}"
        return text if code == 0 else text + errors

    def start(self, *arguments, **changes):
        return subprocess.Popen([BIN / "yard", *map(str, arguments)],
                                env=self.environment(**changes), stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True)


def wait_until(condition, what):
    end = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def answers(url):
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False


@contextlib.contextmanager
def process_server(name, command, url):
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            wait_until(lambda: answers(url), f"{name} did not start")
            yield Server(name, url)
        finally:
            process.kill()


@contextlib.contextmanager
def moto(folder):
    del folder
    port = free_port()
    command = [TOOLS / "moto_server", "-H", "127.0.0.1", "-p", str(port)]
    with process_server("moto", command, f"http://127.0.0.1:{port}") as server:
        server.client().create_bucket(Bucket="bucket")
        yield server


@contextlib.contextmanager
def rclone(folder):
    (folder / "bucket").mkdir()
    port = free_port()
    command = [TOOLS / "rclone", "serve", "s3", "--config", os.devnull, "--addr",
               f"127.0.0.1:{port}", "--auth-key", f"{ACCESS_KEY},{SECRET_KEY}", folder]
    with process_server("rclone", command, f"http://127.0.0.1:{port}") as server:
        yield server


@contextlib.contextmanager
def own(folder):
    (folder / "bucket").mkdir(parents=True)
    gateway = Served(folder)
    try:
        exports = gateway.exports()
        yield Server("yard", gateway.url, exports["AWS_ACCESS_KEY_ID"],
                     exports["AWS_SECRET_ACCESS_KEY"])
    finally:
        gateway.process.kill()
        gateway.process.wait(WAIT_SECONDS)
        gateway.process.stdout.close()


class HoldingProxy:
    """Passes connections on; from the server to the client at most `limit` bytes until release()."""

    def __init__(self, target_url, limit):
        host, port = target_url.split("//")[1].split(":")
        self.target = (host, int(port))
        self.passed_down = 0
        self.passed_up = 0
        self.limit = limit
        self.room = threading.Condition()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.release()
        self.listener.close()

    def release(self):
        with self.room:
            self.limit = float("inf")
            self.room.notify_all()

    def is_held(self):
        with self.room:
            return self.passed_down >= self.limit or self.passed_up >= self.limit

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
                server = socket.create_connection(self.target)
            except OSError:
                return
            for source, sink, name in [(client, server, "passed_up"),
                                       (server, client, "passed_down")]:
                threading.Thread(target=self._pump, args=(source, sink, name), daemon=True).start()

    def _pump(self, source, sink, name):
        try:
            while data := source.recv(1 << 16):
                with self.room:
                    self.room.wait_for(lambda: getattr(self, name) < self.limit)
                    setattr(self, name, getattr(self, name) + len(data))
                sink.sendall(data)
        except OSError:
            pass
        finally:
            for each in (source, sink):
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
                each.close()
