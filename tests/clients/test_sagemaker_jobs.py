"""Jobs as clients see them, from CreateTrainingJob to model.tar.gz: boto3 against `yard serve`, whose
hosts run the scripts."""

import io
import json
import re
import tarfile
import time

import botocore.exceptions
import pytest

from platform_served import BUCKET, IMAGE, ROLE, Platform, platform_at, smallest_job
from served import error_of

ENDED = ("Completed", "Failed", "Stopped")
END_WAIT_SECONDS = 120  # only a failure comes near it

SCRIPT = """
import json, os, pathlib, sys
print("hello from", os.environ["SM_CURRENT_HOST"], flush=True)
print("arguments", *sys.argv[1:], flush=True)
data = pathlib.Path(os.environ["SM_CHANNEL_TRAIN"], "a.txt").read_text()
pathlib.Path(os.environ["SM_MODEL_DIR"], "weights.txt").write_text(data.upper())
"""
FAILS = "import sys\nprint('about to fail', flush=True)\nsys.exit(7)\n"
SLEEPS = "import time\nprint('asleep', flush=True)\ntime.sleep(600)\n"


@pytest.fixture(scope="module")
def platform(tmp_path_factory):
    with platform_at(tmp_path_factory.mktemp("home")) as running:
        yield running


@pytest.fixture(scope="module")
def sagemaker(platform):
    return platform.client("sagemaker")


def upload_source(platform, name, script):
    """As the SDK does it; the hyperparameters that say where it lies."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        info = tarfile.TarInfo("train.py")
        info.size = len(script)
        archive.addfile(info, io.BytesIO(script.encode()))
    key = f"{name}/source/sourcedir.tar.gz"
    platform.client("s3").put_object(Bucket=BUCKET, Key=key, Body=packed.getvalue())
    return {"sagemaker_program": json.dumps("train.py"),
            "sagemaker_submit_directory": json.dumps(f"s3://{BUCKET}/{key}"),
            "sagemaker_region": json.dumps("us-east-1"), "sagemaker_job_name": json.dumps(name)}


def start(platform, name, script, **more):
    hyperparameters = {**upload_source(platform, name, script), **more.pop("HyperParameters", {})}
    return platform.client("sagemaker").create_training_job(
        **smallest_job(name, HyperParameters=hyperparameters, **more))["TrainingJobArn"]


def wait_for(sagemaker, name, condition):
    end = time.monotonic() + END_WAIT_SECONDS
    while True:
        job = sagemaker.describe_training_job(TrainingJobName=name)
        if condition(job):
            return job
        assert time.monotonic() < end, job
        time.sleep(0.1)


def wait_for_end(sagemaker, name):
    return wait_for(sagemaker, name, lambda job: job["TrainingJobStatus"] in ENDED)


def log_lines(platform, name):
    logs = platform.client("logs")
    group = "/aws/sagemaker/TrainingJobs"
    lines = []
    for stream in logs.describe_log_streams(logGroupName=group,
                                            logStreamNamePrefix=name + "/")["logStreams"]:
        assert re.fullmatch(name + r"/algo-\d+-\d+", stream["logStreamName"])
        token = {}
        while True:
            page = logs.get_log_events(logGroupName=group, logStreamName=stream["logStreamName"],
                                       startFromHead=True, **token)
            lines += [event["message"] for event in page["events"]]
            if token.get("nextToken") == page["nextForwardToken"]:
                break
            token = {"nextToken": page["nextForwardToken"]}
    return lines


def test_a_script_runs_and_leaves_its_model(platform, sagemaker):
    s3 = platform.client("s3")
    s3.put_object(Bucket=BUCKET, Key="data/a.txt", Body=b"some data")
    arn = start(platform, "runs", SCRIPT, HyperParameters={"lr": "0.1"}, InputDataConfig=[
        {"ChannelName": "train", "InputMode": "File",
         "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": f"s3://{BUCKET}/data/"}}}])
    job = wait_for_end(sagemaker, "runs")
    lines = log_lines(platform, "runs")
    assert job["TrainingJobStatus"] == "Completed", (job.get("FailureReason"), lines)
    assert "hello from algo-1" in lines
    assert "arguments --lr 0.1" in lines
    uri = job["ModelArtifacts"]["S3ModelArtifacts"]
    assert uri == f"s3://{BUCKET}/out/runs/output/model.tar.gz"
    packed = s3.get_object(Bucket=BUCKET, Key=uri.split("/", 3)[3])["Body"].read()
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        assert archive.extractfile("weights.txt").read() == b"SOME DATA"
    statuses = [each["Status"] for each in job["SecondaryStatusTransitions"]]
    assert statuses[0] == "Starting" and statuses[-1] == "Completed"
    assert statuses.index("Downloading") < statuses.index("Training") < statuses.index("Uploading")
    assert job["CreationTime"] <= job["TrainingStartTime"] <= job["TrainingEndTime"]
    assert job["TrainingTimeInSeconds"] >= 1 and job["BillableTimeInSeconds"] >= 1
    assert job["OutputDataConfig"]["KmsKeyId"] == ""
    assert arn == job["TrainingJobArn"]


def test_a_script_that_fails_says_how(platform, sagemaker):
    start(platform, "fails", FAILS)
    job = wait_for_end(sagemaker, "fails")
    assert job["TrainingJobStatus"] == "Failed"
    assert job["FailureReason"].startswith("AlgorithmError")
    assert "ExitCode 7" in job["FailureReason"] and "about to fail" in job["FailureReason"]
    assert "about to fail" in log_lines(platform, "fails")


def test_a_job_is_changed_while_it_runs_and_stopped(platform, sagemaker):
    start(platform, "stops", SLEEPS, ProfilerConfig={"S3OutputPath": f"s3://{BUCKET}/p"})
    wait_for(sagemaker, "stops", lambda job: "asleep" in log_lines(platform, "stops")
             or job["TrainingJobStatus"] in ENDED)
    rule = {"RuleConfigurationName": "LowGPUUtilization", "RuleEvaluatorImage": "rules:latest"}
    sagemaker.update_training_job(TrainingJobName="stops", RemoteDebugConfig={"EnableRemoteDebug": True},
                                  ProfilerConfig={"ProfilingIntervalInMilliseconds": 1000},
                                  ProfilerRuleConfigurations=[rule],
                                  ResourceConfig={"KeepAlivePeriodInSeconds": 60})
    for repeated, code in (([rule], "ValidationException"),
                           ([{**rule, "RuleConfigurationName": f"r{i}"} for i in range(20)], "ResourceLimitExceeded")):
        assert error_of(sagemaker.update_training_job, TrainingJobName="stops",
                        ProfilerRuleConfigurations=repeated) == (code, 400)
    job = sagemaker.describe_training_job(TrainingJobName="stops")
    assert job["ProfilerConfig"] == {"S3OutputPath": f"s3://{BUCKET}/p", "DisableProfiler": False,
                                     "ProfilingIntervalInMilliseconds": 1000}
    assert job["ProfilerRuleConfigurations"] == [rule] and job["ProfilingStatus"] == "Enabled"
    assert job["RemoteDebugConfig"] == {"EnableRemoteDebug": True}
    assert job["ResourceConfig"]["KeepAlivePeriodInSeconds"] == 60
    sagemaker.update_training_job(TrainingJobName="stops", ProfilerConfig={"DisableProfiler": True},
                                  ResourceConfig={"KeepAlivePeriodInSeconds": 0})
    assert error_of(sagemaker.delete_training_job, TrainingJobName="stops") == ("ResourceInUse", 400)
    sagemaker.stop_training_job(TrainingJobName="stops")
    job = wait_for_end(sagemaker, "stops")
    assert (job["TrainingJobStatus"], job["SecondaryStatus"]) == ("Stopped", "Stopped")
    assert job["ProfilingStatus"] == "Disabled"
    assert error_of(sagemaker.stop_training_job, TrainingJobName="stops")[0] == "ValidationException"
    assert error_of(sagemaker.update_training_job, TrainingJobName="stops",
                    RemoteDebugConfig={"EnableRemoteDebug": False})[0] == "ValidationException"


PROCESS = """
import pathlib, sys
text = pathlib.Path("/opt/ml/processing/input/in/a.txt").read_text()
print("processes", *sys.argv[1:], flush=True)
pathlib.Path("/opt/ml/processing/output/b.txt").write_text(text.upper())
sys.exit(len(sys.argv) > 2)
"""


def processing_job(name, *arguments):
    def source(kind, path):
        return {"InputName": kind, "S3Input": {
            "S3Uri": f"s3://{BUCKET}/{path}", "LocalPath": f"/opt/ml/processing/input/{kind}",
            "S3DataType": "S3Prefix", "S3InputMode": "File", "S3DataDistributionType": "FullyReplicated"}}

    return {"ProcessingJobName": name, "RoleArn": ROLE,
            "AppSpecification": {"ImageUri": IMAGE, "ContainerArguments": list(arguments),
                                 "ContainerEntrypoint": ["python3", "/opt/ml/processing/input/code/process.py"]},
            "ProcessingInputs": [source("code", f"{name}/process.py"), source("in", f"{name}/in/")],
            "ProcessingOutputConfig": {"Outputs": [{"OutputName": "out", "S3Output": {
                "S3Uri": f"s3://{BUCKET}/{name}/out", "LocalPath": "/opt/ml/processing/output",
                "S3UploadMode": "EndOfJob"}}]},
            "ProcessingResources": {"ClusterConfig": {"InstanceCount": 1, "InstanceType": "ml.m5.large",
                                                      "VolumeSizeInGB": 1}}}


def test_processing_jobs(platform, sagemaker):
    s3 = platform.client("s3")
    for name, script, arguments in (("processes", PROCESS, ["a"]), ("process-fails", PROCESS, ["a", "b"]),
                                    ("process-stops", SLEEPS, ["a"])):
        s3.put_object(Bucket=BUCKET, Key=f"{name}/process.py", Body=script.encode())
        s3.put_object(Bucket=BUCKET, Key=f"{name}/in/a.txt", Body=b"some data")
        arn = sagemaker.create_processing_job(**processing_job(name, *arguments))["ProcessingJobArn"]
        assert arn.endswith(f":processing-job/{name}")
    assert error_of(sagemaker.create_processing_job, **processing_job(name, "a")) == ("ResourceInUse", 400)
    assert error_of(sagemaker.delete_processing_job, ProcessingJobName=name) == ("ResourceInUse", 400)
    sagemaker.stop_processing_job(ProcessingJobName="process-stops")

    def end_of(name):
        end = time.monotonic() + END_WAIT_SECONDS
        while True:
            job = sagemaker.describe_processing_job(ProcessingJobName=name)
            if job["ProcessingJobStatus"] in ENDED or time.monotonic() > end:
                return job
            time.sleep(0.1)

    job = end_of("processes")
    assert job["ProcessingJobStatus"] == "Completed", job
    assert job["CreationTime"] <= job["ProcessingStartTime"] <= job["ProcessingEndTime"]
    assert s3.get_object(Bucket=BUCKET, Key="processes/out/b.txt")["Body"].read() == b"SOME DATA"
    logs = platform.client("logs")
    found = logs.filter_log_events(logGroupName="/aws/sagemaker/ProcessingJobs", logStreamNamePrefix="processes/",
                                   filterPattern='"processes a"')["events"]
    assert [event["message"] for event in found] == ["processes a"]
    failed = end_of("process-fails")
    assert failed["ProcessingJobStatus"] == "Failed" and failed["ExitMessage"] == failed["FailureReason"]
    assert "1" in failed["FailureReason"]
    assert end_of("process-stops")["ProcessingJobStatus"] == "Stopped"
    listed = sagemaker.list_processing_jobs(NameContains="process", StatusEquals="Completed")
    assert [each["ProcessingJobName"] for each in listed["ProcessingJobSummaries"]] == ["processes"]
    sagemaker.delete_processing_job(ProcessingJobName="process-fails")
    for gone in (sagemaker.describe_processing_job, sagemaker.stop_processing_job, sagemaker.delete_processing_job):
        with pytest.raises(botocore.exceptions.ClientError, match="Could not find"):
            gone(ProcessingJobName="process-fails")


def test_a_name_is_given_once(platform, sagemaker):
    start(platform, "once", FAILS)
    with pytest.raises(botocore.exceptions.ClientError) as failed:
        start(platform, "once", FAILS)
    assert failed.value.response["Error"]["Code"] == "ResourceInUse"
    wait_for_end(sagemaker, "once")


def test_jobs_are_listed_tagged_searched_and_deleted(platform, sagemaker):
    for i in range(3):
        start(platform, f"many-{i}", FAILS, HyperParameters={"lr": f"0.{i}"},
              Tags=[{"Key": "team", "Value": f"t{i}"}])
    pages = sagemaker.get_paginator("list_training_jobs").paginate(
        NameContains="many", SortBy="Name", SortOrder="Ascending", PaginationConfig={"PageSize": 2})
    names = [job["TrainingJobName"] for page in pages for job in page["TrainingJobSummaries"]]
    assert names == ["many-0", "many-1", "many-2"]
    arn = sagemaker.describe_training_job(TrainingJobName="many-1")["TrainingJobArn"]
    sagemaker.add_tags(ResourceArn=arn, Tags=[{"Key": "extra", "Value": "x"}])
    sagemaker.delete_tags(ResourceArn=arn, TagKeys=["team"])
    assert sagemaker.list_tags(ResourceArn=arn)["Tags"] == [{"Key": "extra", "Value": "x"}]

    def search(*filters):
        found = sagemaker.search(Resource="TrainingJob", SearchExpression={"Filters": list(filters)})
        return sorted(each["TrainingJob"]["TrainingJobName"] for each in found["Results"])

    many = {"Name": "TrainingJobName", "Operator": "Contains", "Value": "many"}
    assert search(many, {"Name": "HyperParameters.lr", "Operator": "GreaterThan", "Value": "0.05"}) \
        == ["many-1", "many-2"]
    assert search({"Name": "Tags.extra", "Operator": "Equals", "Value": "x"}) == ["many-1"]
    wait_for_end(sagemaker, "many-0")
    sagemaker.delete_training_job(TrainingJobName="many-0")
    assert error_of(sagemaker.describe_training_job, TrainingJobName="many-0")[0] == \
        "ValidationException"
    for name in ("many-1", "many-2"):
        wait_for_end(sagemaker, name)


def test_no_secret_is_anywhere_but_with_the_users(platform):
    secrets = [user["secret_access_key"].encode() for user in json.loads((platform.home / "users.json").read_text())["users"]]
    assert len(secrets) >= 2
    files = [path for path in platform.home.rglob("*") if path.is_file() and path.name != "users.json"]
    assert any("jobs" in path.parts for path in files)
    assert [path for path in files if any(secret in path.read_bytes() for secret in secrets)] == []


def test_a_job_outlives_a_crash_of_the_platform(tmp_path):
    running = Platform(tmp_path / "home")
    try:
        start(running, "outlives", "import time\nprint('begun', flush=True)\ntime.sleep(3)\n"
                                   "print('done', flush=True)\n")
        wait_for(running.client("sagemaker"), "outlives",
                 lambda job: "begun" in log_lines(running, "outlives")
                 or job["TrainingJobStatus"] in ENDED)
        running.kill()
        running.start()
        job = wait_for_end(running.client("sagemaker"), "outlives")
        lines = log_lines(running, "outlives")
        assert job["TrainingJobStatus"] == "Completed", (job.get("FailureReason"), lines)
        assert lines.count("begun") == 1 and "done" in lines
    finally:
        running.stop()
