"""`yard serve` whose objects lie in another S3, on a machine with one host for jobs."""

import concurrent.futures
import io
import json
import tarfile

import pytest

from platform_served import platform_at, smallest_job
from served import served
from test_sagemaker_jobs import SLEEPS, log_lines, wait_for, wait_for_end

BUCKET = "team"
SCRIPT = """
import os, pathlib
text = pathlib.Path(os.environ["SM_CHANNEL_TRAIN"], "a.txt").read_text()
pathlib.Path(os.environ["SM_MODEL_DIR"], "weights.txt").write_text(text.upper())
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with served(tmp_path_factory.mktemp("store")) as running:
        running.client().create_bucket(Bucket=BUCKET)
        yield running


@pytest.fixture(scope="module")
def platform(store, tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    (home / "yard.yaml").write_text("slices: {max: 1}\nstop_grace_s: 1\n")
    keys = {name: value for name, value in store.exports().items() if "KEY" in name}
    with platform_at(home, "--s3-endpoint", store.url, "--bucket", BUCKET, env=keys) as running:
        yield running


def start(platform, store, name, script, **more):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        info = tarfile.TarInfo("train.py")
        info.size = len(script)
        archive.addfile(info, io.BytesIO(script.encode()))
    store.client().put_object(Bucket=BUCKET, Key=f"{name}/sourcedir.tar.gz", Body=packed.getvalue())
    request = smallest_job(name, HyperParameters={
        "sagemaker_program": json.dumps("train.py"),
        "sagemaker_submit_directory": json.dumps(f"s3://{BUCKET}/{name}/sourcedir.tar.gz")}, **more)
    request["OutputDataConfig"] = {"S3OutputPath": f"s3://{BUCKET}/out"}
    return platform.client("sagemaker").create_training_job(**request)


def test_clients_are_sent_to_the_other_store(platform, store):
    exports = platform.exports()
    assert exports["AWS_ENDPOINT_URL"] == platform.url and exports["AWS_ENDPOINT_URL_S3"] == store.url
    # One key serves both: that of the store, which is an admin here.
    assert exports["AWS_ACCESS_KEY_ID"] == store.exports()["AWS_ACCESS_KEY_ID"]
    assert platform.client("sagemaker", user="store").list_training_jobs()["TrainingJobSummaries"] == []


def test_a_job_reads_and_writes_the_other_store(platform, store):
    s3 = store.client()
    s3.put_object(Bucket=BUCKET, Key="data/a.txt", Body=b"some data")
    start(platform, store, "elsewhere", SCRIPT, InputDataConfig=[
        {"ChannelName": "train", "InputMode": "File",
         "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": f"s3://{BUCKET}/data/"}}}])
    job = wait_for_end(platform.client("sagemaker"), "elsewhere")
    assert job["TrainingJobStatus"] == "Completed", (job.get("FailureReason"), log_lines(platform, "elsewhere"))
    packed = s3.get_object(Bucket=BUCKET, Key="out/elsewhere/output/model.tar.gz")["Body"].read()
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        assert archive.extractfile("weights.txt").read() == b"SOME DATA"


def test_two_hundred_jobs_wait_and_one_name_is_given_once(platform, store):
    start(platform, store, "first", SLEEPS)
    sagemaker = platform.client("sagemaker", max_pool_connections=16)
    wait_for(sagemaker, "first", lambda job: job["SecondaryStatus"] == "Training")

    def create(name):
        try:
            sagemaker.create_training_job(**smallest_job(name))
            return "created"
        except sagemaker.exceptions.ClientError as refused:
            return refused.response["Error"]["Code"]

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        assert sorted(pool.map(create, ["one-name"] * 16)) == ["ResourceInUse"] * 15 + ["created"]
        names = [f"waits-{i}" for i in range(200)]
        assert set(pool.map(create, names)) == {"created"}
        pages = sagemaker.get_paginator("list_training_jobs").paginate(NameContains="waits-", StatusEquals="InProgress",
                                                                       PaginationConfig={"PageSize": 100})
        waiting = [job for page in pages for job in page["TrainingJobSummaries"]]
        assert sorted(job["TrainingJobName"] for job in waiting) == sorted(names)
        list(pool.map(lambda name: sagemaker.stop_training_job(TrainingJobName=name), [*names, "one-name"]))
    sagemaker.stop_training_job(TrainingJobName="first")
    for name in ("first", "one-name", *names[::20]):
        assert wait_for_end(sagemaker, name)["TrainingJobStatus"] == "Stopped"
