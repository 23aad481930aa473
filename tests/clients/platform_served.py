"""The platform as `yard serve` runs it, and AWS clients for it."""

import contextlib
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import threading

import boto3
import botocore.config

from served import BIN, WAIT_SECONDS

ACCOUNT = "123456789012"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/SageMakerRole"
IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.3.0-cpu-py311"
BUCKET = f"sagemaker-us-east-1-{ACCOUNT}"


class Platform:
    """One running `yard serve`; `kill()` as a crash does it, `start()` again afterwards."""

    def __init__(self, home, *options, env=None):
        self.env = env or {}
        self.home = pathlib.Path(home)
        self.options = options
        self.listen = "127.0.0.1:0"
        self.process = None
        self.keys = {}  # of users whose clients were made
        self.start()

    def start(self):
        kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        self.process = subprocess.Popen(
            [BIN / "yard", "serve", "--listen", self.listen, *self.options],
            stdout=subprocess.PIPE, text=True,
            env={**kept, **self.env, "YARD_HOME": str(self.home)})
        timer = threading.Timer(WAIT_SECONDS, self.process.kill)
        timer.start()
        line = self.process.stdout.readline()
        timer.cancel()
        found = re.search(r"at (https?://\S+?);", line)
        assert found, f"the platform did not start: {line!r}"
        self.url = found.group(1)
        self.listen = self.url.split("//")[1]  # the same when it starts again

    def yard(self, *arguments):
        return subprocess.run([BIN / "yard", *arguments], check=True, capture_output=True, text=True,
                              timeout=WAIT_SECONDS,
                              env={**os.environ, "YARD_HOME": str(self.home)}).stdout

    def exports(self, *arguments):
        """What `yard env` prints, as a dictionary."""
        words = [shlex.split(line) for line in self.yard("env", *arguments).splitlines()]
        return dict(line[1].split("=", 1) for line in words if line[0] == "export")

    def client(self, service, user="admin", **config):
        exports = self.keys.get(user) or self.keys.setdefault(user, self.exports("--user", user))
        config.setdefault("retries", {"total_max_attempts": 1})
        verify = config.pop("verify", None)
        keys = {"aws_access_key_id": exports["AWS_ACCESS_KEY_ID"],
                "aws_secret_access_key": exports["AWS_SECRET_ACCESS_KEY"]}
        keys.update({name: config.pop(name) for name in list(keys) if name in config})
        return boto3.session.Session().client(
            service, endpoint_url=self.url, region_name="us-east-1", verify=verify,
            config=botocore.config.Config(**config), **keys)

    def environment(self):
        """For programs with clients of their own: nothing of the person's own settings."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        return {**kept, **self.exports(), "YARD_HOME": str(self.home),
                "AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull}

    def audit(self):
        return [json.loads(line) for line in (self.home / "audit.log").read_text().splitlines()]

    def kill(self):
        self.process.kill()
        self.process.wait(WAIT_SECONDS)
        self.process.stdout.close()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(WAIT_SECONDS) == 0
        self.process.stdout.close()


@contextlib.contextmanager
def platform_at(home, *options, env=None):
    running = Platform(home, *options, env=env)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.stop()


def smallest_job(name, **more):
    """What CreateTrainingJob needs at the least."""
    return {"TrainingJobName": name,
            "AlgorithmSpecification": {"TrainingImage": IMAGE, "TrainingInputMode": "File"},
            "RoleArn": ROLE, "OutputDataConfig": {"S3OutputPath": f"s3://{BUCKET}/out"},
            "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1,
                               "VolumeSizeInGB": 1},
            "StoppingCondition": {"MaxRuntimeInSeconds": 300}, **more}
