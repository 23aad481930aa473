"""Jobs of `yard serve` on several hosts, whatever is killed meanwhile: real supervisors, boto3."""

import io
import json
import os
import pathlib
import random
import signal
import sys
import tarfile
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "clients"))
from platform_served import BUCKET, platform_at, smallest_job  # noqa: E402

import platform_host  # noqa: E402

ENDED = ("Completed", "Failed", "Stopped")
END_WAIT_SECONDS = 180  # only a failure comes near it

SCRIPT = """
host=$(hostname)
echo "hello from $host"
echo $host > /opt/ml/model/$host.txt
sleep {seconds}
"""


@pytest.fixture(autouse=True, scope="module")
def sandbox():
    platform_host.needs_sandbox()


@pytest.fixture
def platform(tmp_path, request):
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    config = getattr(request, "param", "slices: {max: 4}\n")
    (home / "yard.yaml").write_text(config)
    with platform_at(home) as running:
        yield running


def start(platform, name, hosts=1, seconds=0.0, script=SCRIPT):
    job = smallest_job(name)
    job["ResourceConfig"]["InstanceCount"] = hosts
    job["AlgorithmSpecification"]["ContainerEntrypoint"] = ["/bin/sh", "-c"]
    job["AlgorithmSpecification"]["ContainerArguments"] = [script.format(seconds=seconds)]
    platform.client("sagemaker").create_training_job(**job)


def wait_for(platform, name, condition):
    sagemaker = platform.client("sagemaker")
    end = time.monotonic() + END_WAIT_SECONDS
    while True:
        job = sagemaker.describe_training_job(TrainingJobName=name)
        if condition(job):
            return job
        assert time.monotonic() < end, job
        time.sleep(0.05)


def wait_for_end(platform, name):
    return wait_for(platform, name, lambda job: job["TrainingJobStatus"] in ENDED)


def host_folder(platform, name, host="algo-1"):
    return platform.home / "jobs" / name / "hosts" / host


def supervisor_pid(platform, name, host="algo-1"):
    status = json.loads((host_folder(platform, name, host) / "status.json").read_text())
    return status["supervisor"]["pid"]


def launches(platform, name, host="algo-1"):
    """How often the supervisors of a host began the job's script."""
    lines = (host_folder(platform, name, host) / "events.jsonl").read_text().splitlines()
    return [json.loads(line)["event"] for line in lines].count("launched")


def model_files(platform, job):
    uri = job["ModelArtifacts"]["S3ModelArtifacts"]
    key = uri.removeprefix(f"s3://{BUCKET}/")
    body = platform.client("s3").get_object(Bucket=BUCKET, Key=key)["Body"].read()
    with tarfile.open(fileobj=io.BytesIO(body)) as archive:
        return sorted(pathlib.PurePath(name).name for name in archive.getnames() if name.endswith("txt"))


def statuses(job):
    return [change["Status"] for change in job["SecondaryStatusTransitions"]]


def test_two_hosts_run_one_script_and_leave_one_model(platform):
    start(platform, "two", hosts=2)
    job = wait_for_end(platform, "two")
    assert job["TrainingJobStatus"] == "Completed", job
    assert statuses(job)[-4:] == ["Downloading", "Training", "Uploading", "Completed"]
    assert model_files(platform, job) == ["algo-1.txt", "algo-2.txt"]
    for host in ["algo-1", "algo-2"]:
        assert launches(platform, "two", host) == 1


def test_logs_can_be_read_when_a_job_has_ended(platform):
    start(platform, "told", hosts=2)
    wait_for_end(platform, "told")
    logs = platform.client("logs")
    group = "/aws/sagemaker/TrainingJobs"
    streams = logs.describe_log_streams(logGroupName=group, logStreamNamePrefix="told/")["logStreams"]
    lines = [event["message"] for stream in streams for event in logs.get_log_events(
        logGroupName=group, logStreamName=stream["logStreamName"], startFromHead=True)["events"]]
    assert sorted(line for line in lines if line.startswith("hello")) == [
        "hello from algo-1", "hello from algo-2"]


@pytest.mark.parametrize("platform", ["slices: {max: 4, faulty: [1, 3]}\n"], indirect=True)
def test_faulty_hosts_are_replaced_before_the_script(platform):
    start(platform, "healed", hosts=2)
    job = wait_for_end(platform, "healed")
    assert job["TrainingJobStatus"] == "Completed", job
    assert "Restarting" not in statuses(job)
    for host in ["algo-1", "algo-2"]:
        assert launches(platform, "healed", host) == 1


def test_a_killed_supervisor_restarts_the_job_elsewhere_and_is_not_billed(platform):
    start(platform, "lost", hosts=2, seconds=1.5)
    wait_for(platform, "lost", lambda job: job["SecondaryStatus"] == "Training")
    os.kill(supervisor_pid(platform, "lost", "algo-2"), signal.SIGKILL)
    job = wait_for_end(platform, "lost")
    assert job["TrainingJobStatus"] == "Completed", job
    assert statuses(job).count("Restarting") == 1
    assert job["BillableTimeInSeconds"] <= job["TrainingTimeInSeconds"]
    assert model_files(platform, job) == ["algo-1.txt", "algo-2.txt"]


def test_a_stop_ends_the_scripts_and_uploads_what_there_is(platform):
    start(platform, "ended", hosts=2, seconds=600)
    written = [host_folder(platform, "ended", host) / f"ml/model/{host}.txt" for host in ["algo-1", "algo-2"]]
    wait_for(platform, "ended", lambda job: all(path.exists() for path in written))
    platform.client("sagemaker").stop_training_job(TrainingJobName="ended")
    job = wait_for_end(platform, "ended")
    assert (job["TrainingJobStatus"], job["SecondaryStatus"]) == ("Stopped", "Stopped")
    assert "Stopping" in statuses(job)
    assert model_files(platform, job) == ["algo-1.txt", "algo-2.txt"]


def test_a_daemon_that_is_killed_again_and_again_loses_nothing(platform):
    rng = random.Random(20261130)
    names = [f"stream-{number}" for number in range(6)]
    for number, name in enumerate(names):
        start(platform, name, hosts=1 + number % 2, seconds=0.2)
    for _ in range(12):
        time.sleep(rng.uniform(0.05, 0.4))
        platform.kill()
        platform.start()
    for number, name in enumerate(names):
        job = wait_for_end(platform, name)
        assert job["TrainingJobStatus"] == "Completed", job
        hosts = [f"algo-{host + 1}" for host in range(1 + number % 2)]
        assert [launches(platform, name, host) for host in hosts] == [1] * len(hosts)
        assert model_files(platform, job) == [f"{host}.txt" for host in hosts]
