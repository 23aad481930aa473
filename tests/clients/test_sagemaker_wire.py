"""What every AWS client of `yard serve` meets, whatever it asks for: boto3 and the AWS CLI."""

import concurrent.futures
import os
import pathlib
import stat
import subprocess
import sys
import urllib.error
import urllib.request

import botocore.exceptions
import pytest

from platform_served import ACCOUNT, BUCKET, IMAGE, ROLE, Platform, platform_at, smallest_job
from served import WAIT_SECONDS, error_of

AWS = pathlib.Path(sys.executable).parent / "aws"


@pytest.fixture(scope="module")
def platform(tmp_path_factory):
    with platform_at(tmp_path_factory.mktemp("home")) as running:
        yield running


def aws(platform, *arguments):
    return subprocess.run([AWS, *arguments], check=True, capture_output=True, text=True,
                          timeout=WAIT_SECONDS, env=platform.environment()).stdout


def test_who_am_i_is_the_user_of_the_key(platform):
    identity = platform.client("sts").get_caller_identity()
    assert identity["Account"] == ACCOUNT
    assert identity["Arn"] == f"arn:aws:iam::{ACCOUNT}:user/admin"


def test_roles_may_do_what_the_sdk_asks_for(platform):
    iam = platform.client("iam")
    answer = iam.simulate_principal_policy(
        PolicySourceArn=ROLE, ActionNames=["s3:PutObject", "ecr:GetAuthorizationToken"],
        ResourceArns=["arn:aws:s3:::b/*"])
    assert [each["EvalDecision"] for each in answer["EvaluationResults"]] == ["allowed"] * 2
    role = iam.get_role(RoleName="SageMakerRole")["Role"]
    assert role["Arn"] == ROLE
    principal = role["AssumeRolePolicyDocument"]["Statement"][0]["Principal"]
    assert principal == {"Service": "sagemaker.amazonaws.com"}


def test_objects_are_on_the_same_port(platform):
    s3 = platform.client("s3")
    assert BUCKET in [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]]
    s3.put_object(Bucket=BUCKET, Key="a/b", Body=b"content", ServerSideEncryption="aws:kms")
    assert s3.get_object(Bucket=BUCKET, Key="a/b")["Body"].read() == b"content"
    s3.head_bucket(Bucket=BUCKET, ExpectedBucketOwner=ACCOUNT)
    url = s3.generate_presigned_url("get_object", Params={"Bucket": BUCKET, "Key": "a/b"})
    assert urllib.request.urlopen(url).read() == b"content"


def test_an_unknown_service_or_operation_is_an_error_of_the_client(platform):
    code, status = error_of(platform.client("sagemaker").create_model, ModelName="m",
                            ExecutionRoleArn=ROLE)
    assert (code, status) == ("UnknownOperationException", 400)
    assert error_of(platform.client("rekognition").list_collections)[1] == 400
    assert error_of(platform.client("iam").list_users) == ("InvalidAction", 400)


def test_nobody_comes_in_without_a_right_key(platform):
    wrong = {"aws_access_key_id": "AKIANOBODY", "aws_secret_access_key": "x"}
    assert error_of(platform.client("sagemaker", **wrong).list_training_jobs) == \
        ("UnrecognizedClientException", 403)
    assert error_of(platform.client("sts", **wrong).get_caller_identity) == \
        ("InvalidClientTokenId", 403)
    assert error_of(platform.client("s3", **wrong).list_buckets)[1] == 403
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(platform.url)
    assert refused.value.code == 403


def test_roles_of_users(platform):
    platform.yard("users", "add", "reader", "--role", "read")
    reader = platform.client("sagemaker", user="reader")
    assert reader.list_training_jobs()["TrainingJobSummaries"] is not None
    assert error_of(reader.create_training_job, **smallest_job("refused"))[0] == \
        "AccessDeniedException"
    assert error_of(platform.client("s3", user="reader").put_object, Bucket=BUCKET, Key="k",
                    Body=b"x") == ("AccessDenied", 403)
    entry = [each for each in platform.audit() if each["operation"] == "CreateTrainingJob"][-1]
    assert (entry["user"], entry["resource"], entry["outcome"]) == \
        ("reader", "refused", "AccessDeniedException")
    platform.yard("users", "remove", "reader")
    assert error_of(reader.list_training_jobs)[0] == "UnrecognizedClientException"


def test_keys_are_for_the_owner_alone(platform):
    for name in ("users.json", "audit.log"):
        assert stat.S_IMODE(os.stat(platform.home / name).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(platform.home).st_mode) == 0o700


VALID = smallest_job("valid")
WRONG = [
    ({"TrainingJobName": None}, "'trainingJobName' failed to satisfy constraint: Member must not be null"),
    ({"RoleArn": None}, "'roleArn' failed to satisfy constraint: Member must not be null"),
    ({"OutputDataConfig": None}, "'outputDataConfig' failed to satisfy constraint: Member must not be null"),
    ({"TrainingJobName": "a_b"}, "regular expression pattern: [a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}"),
    ({"TrainingJobName": "a" * 64}, "length less than or equal to 63"),
    ({"HyperParameters": {"big": "x" * 2501}}, "Map value must satisfy constraint"),
    ({"HyperParameters": {f"k{i}": "x" for i in range(101)}}, "length less than or equal to 100"),
    ({"Environment": {"A": "x" * 513}}, "Map value must satisfy constraint"),
    ({"InputDataConfig": []}, "length greater than or equal to 1"),
    ({"Tags": [{"Key": f"k{i}", "Value": ""} for i in range(51)]}, "length less than or equal to 50"),
    ({"StoppingCondition": {"MaxRuntimeInSeconds": 0}}, "value greater than or equal to 1"),
    ({"AlgorithmSpecification": {"TrainingImage": IMAGE, "TrainingInputMode": "Tape"}},
     "enum value set: [Pipe, File, FastFile]"),
]


@pytest.mark.parametrize("change, words", WRONG, ids=range(len(WRONG)))
def test_a_wrong_request_is_told_what_is_wrong(platform, change, words):
    client = platform.client("sagemaker", parameter_validation=False)
    request = {name: value for name, value in {**VALID, **change}.items() if value is not None}
    with pytest.raises(botocore.exceptions.ClientError) as failed:
        client.create_training_job(**request)
    assert failed.value.response["Error"]["Code"] == "ValidationException"
    assert words in failed.value.response["Error"]["Message"]


def test_waiters_know_a_job_that_is_not_there(platform):
    waiter = platform.client("sagemaker").get_waiter("training_job_completed_or_stopped")
    with pytest.raises(botocore.exceptions.WaiterError):
        waiter.wait(TrainingJobName="gone", WaiterConfig={"Delay": 0, "MaxAttempts": 2})
    with pytest.raises(botocore.exceptions.ClientError, match="Could not find"):
        platform.client("sagemaker").describe_training_job(TrainingJobName="gone")


def test_the_aws_cli_speaks_to_it(platform, tmp_path):
    assert f'"Account": "{ACCOUNT}"' in aws(platform, "sts", "get-caller-identity")
    (tmp_path / "f").write_text("text")
    aws(platform, "s3", "cp", str(tmp_path / "f"), f"s3://{BUCKET}/cli/f")
    assert "f" in aws(platform, "s3", "ls", f"s3://{BUCKET}/cli/")
    assert "TrainingJobSummaries" in aws(platform, "sagemaker", "list-training-jobs")
    assert "logStreams" in aws(platform, "logs", "describe-log-streams", "--log-group-name",
                               "/aws/sagemaker/TrainingJobs", "--log-stream-name-prefix", "gone/")


def test_fifty_clients_at_once(platform):
    def poll(_):
        client = platform.client("sagemaker")
        return [client.list_training_jobs()["ResponseMetadata"]["HTTPStatusCode"] for _ in range(3)]

    with concurrent.futures.ThreadPoolExecutor(50) as pool:
        assert all(statuses == [200] * 3 for statuses in pool.map(poll, range(50)))


def test_two_of_one_home_do_not_run_at_once(platform):
    second = subprocess.run([os.fspath(platform.process.args[0]), "serve", "--listen", "127.0.0.1:0"],
                            env={**os.environ, "YARD_HOME": str(platform.home)}, text=True,
                            capture_output=True, timeout=WAIT_SECONDS)
    assert second.returncode != 0
    assert second.stderr.startswith("yard: ")


def test_keys_and_objects_survive_a_crash(tmp_path):
    running = Platform(tmp_path / "home")
    try:
        before = running.exports()
        running.client("s3").put_object(Bucket=BUCKET, Key="k", Body=b"kept")
        running.kill()
        running.start()
        assert running.exports() == before
        assert running.client("s3").get_object(Bucket=BUCKET, Key="k")["Body"].read() == b"kept"
    finally:
        running.stop()


def test_tls(tmp_path):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
                    "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1",
                    "-keyout", tmp_path / "key.pem", "-out", tmp_path / "cert.pem"],
                   check=True, capture_output=True)
    with platform_at(tmp_path / "home", "--tls-certificate", str(tmp_path / "cert.pem"),
                     "--tls-key", str(tmp_path / "key.pem")) as running:
        assert running.url.startswith("https://")
        assert running.exports()["AWS_CA_BUNDLE"] == str(tmp_path / "cert.pem")
        client = running.client("sts", verify=str(tmp_path / "cert.pem"))
        assert client.get_caller_identity()["Account"] == ACCOUNT
