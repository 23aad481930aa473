"""A folder served by `yard s3 serve`, and clients for it."""

import contextlib
import os
import pathlib
import re
import shlex
import signal
import subprocess
import threading

import boto3
import botocore.config
import botocore.exceptions
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("YARD_BIN_DIR", ROOT / "build/release/bin"))
WAIT_SECONDS = 60  # only a failure comes near it


class Served:
    """One running gateway; `kill()` as a crash does it."""

    def __init__(self, folder, *options):
        self.folder = pathlib.Path(folder)
        self.process = subprocess.Popen(
            [BIN / "yard", "s3", "serve", self.folder, "--listen", "127.0.0.1:0", *options],
            stdout=subprocess.PIPE, text=True)
        timer = threading.Timer(WAIT_SECONDS, self.process.kill)
        timer.start()
        line = self.process.stdout.readline()
        timer.cancel()
        found = re.search(r"at (https?://\S+?);", line)
        assert found, f"the gateway did not start: {line!r}"
        self.url = found.group(1)

    def exports(self):
        """What `yard s3 env` prints, as a dictionary."""
        text = subprocess.run([BIN / "yard", "s3", "env", self.folder], check=True,
                              capture_output=True, text=True).stdout
        words = [shlex.split(line) for line in text.splitlines()]
        return dict(line[1].split("=", 1) for line in words if line[0] == "export")

    def client(self, service="s3", **config):
        exports = self.exports()
        keys = {"aws_access_key_id": exports["AWS_ACCESS_KEY_ID"],
                "aws_secret_access_key": exports["AWS_SECRET_ACCESS_KEY"]}
        keys.update({name: config.pop(name) for name in list(keys) if name in config})
        config.setdefault("retries", {"total_max_attempts": 1})
        verify = config.pop("verify", None)
        return boto3.session.Session().client(
            service, endpoint_url=self.url, region_name="us-east-1", verify=verify,
            config=botocore.config.Config(**config), **keys)

    def environment(self):
        """For the AWS CLI: nothing of the person's own settings."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        return {**kept, **self.exports(), "AWS_CONFIG_FILE": os.devnull,
                "AWS_SHARED_CREDENTIALS_FILE": os.devnull, "AWS_EC2_METADATA_DISABLED": "true"}

    def kill(self):
        self.process.kill()
        self.process.wait(WAIT_SECONDS)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(WAIT_SECONDS) == 0


@contextlib.contextmanager
def served(folder, *options):
    gateway = Served(folder, *options)
    try:
        yield gateway
    finally:
        if gateway.process.poll() is None:
            gateway.stop()
        gateway.process.stdout.close()


def error_of(call, **arguments):
    """Code and status of the error that the call ends in."""
    with pytest.raises(botocore.exceptions.ClientError) as failed:
        call(**arguments)
    answer = failed.value.response
    return answer["Error"]["Code"], answer["ResponseMetadata"]["HTTPStatusCode"]


def keys_of(s3, bucket, version="list_objects_v2", **arguments):
    pages = s3.get_paginator(version).paginate(Bucket=bucket, **arguments)
    return [entry["Key"] for page in pages for entry in page.get("Contents", [])]
