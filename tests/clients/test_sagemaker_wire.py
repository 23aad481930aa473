"""What every AWS client of `yard serve` meets, whatever it asks for: boto3 and the AWS CLI."""

import concurrent.futures
import json
import os
import pathlib
import stat
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from xml.etree import ElementTree

import botocore.auth
import botocore.awsrequest
import botocore.credentials
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


def ask_by_form(platform, service, fields):
    """As clients did before they spoke JSON: a form, signed, and XML for an answer."""
    exports = platform.exports()
    credentials = botocore.credentials.Credentials(exports["AWS_ACCESS_KEY_ID"], exports["AWS_SECRET_ACCESS_KEY"])
    request = botocore.awsrequest.AWSRequest(
        "POST", platform.url + "/", data=urllib.parse.urlencode(fields),
        headers={"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"})
    botocore.auth.SigV4Auth(credentials, service, "us-east-1").add_auth(request)
    try:
        with urllib.request.urlopen(urllib.request.Request(
                request.url, request.data.encode(), dict(request.headers.items()))) as answer:
            return answer.status, ElementTree.fromstring(answer.read())
    except urllib.error.HTTPError as failed:
        return failed.code, ElementTree.fromstring(failed.read())


def texts(xml, name):
    return [each.text for each in xml.iter() if each.tag.split("}")[-1] == name]


def test_older_clients_speak_in_forms(platform):
    version = {"Version": "2010-08-01", "Namespace": "Form"}
    put = {"Action": "PutMetricData", "MetricData.member.1.MetricName": "m", "MetricData.member.1.Value": "2.5",
           "MetricData.member.1.Dimensions.member.1.Name": "d", "MetricData.member.1.Dimensions.member.1.Value": "x"}
    assert ask_by_form(platform, "monitoring", {**version, **put})[0] == 200
    status, listed = ask_by_form(platform, "monitoring", {**version, "Action": "ListMetrics"})
    assert status == 200 and texts(listed, "MetricName") == ["m"] and texts(listed, "Value") == ["x"]
    now = time.time()
    status, points = ask_by_form(platform, "monitoring", {
        **version, "Action": "GetMetricStatistics", "MetricName": "m", "Period": "3600", "Statistics.member.1": "Sum",
        "Dimensions.member.1.Name": "d", "Dimensions.member.1.Value": "x",
        "StartTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now - 7200)),
        "EndTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now + 60))})
    assert status == 200 and [float(each) for each in texts(points, "Sum")] == [2.5]
    status, error = ask_by_form(platform, "monitoring", {**version, "Action": "GetMetricStatistics", "MetricName": "m"})
    assert status == 400 and texts(error, "Code") != []

    version = {"Version": "2012-11-05"}
    status, made = ask_by_form(platform, "sqs", {**version, "Action": "CreateQueue", "QueueName": "by-form",
                                                 "Attribute.1.Name": "VisibilityTimeout", "Attribute.1.Value": "7"})
    [url] = texts(made, "QueueUrl")
    assert ask_by_form(platform, "sqs", {**version, "Action": "SendMessage", "QueueUrl": url,
                                         "MessageBody": "a & b"})[0] == 200
    status, got = ask_by_form(platform, "sqs", {**version, "Action": "ReceiveMessage", "QueueUrl": url})
    assert texts(got, "Body") == ["a & b"]
    status, error = ask_by_form(platform, "sqs", {**version, "Action": "GetQueueUrl", "QueueName": "none"})
    assert (status, texts(error, "Code")) == (400, ["AWS.SimpleQueueService.NonExistentQueue"])


GROUP = "/aws/sagemaker/TrainingJobs"
OWN = "/own/group"
TRAINING_ARN = f"arn:aws:sagemaker:us-east-1:{ACCOUNT}:training-job/gone"
# What is asked wrongly, and the name of the error; {queue} is a queue, {nowhere} none.
ERRORS = [
    ("sagemaker", "describe_training_job", {"TrainingJobName": "gone"}, "ValidationException"),
    ("sagemaker", "stop_training_job", {"TrainingJobName": "gone"}, "ValidationException"),
    ("sagemaker", "update_training_job", {"TrainingJobName": "gone"}, "ValidationException"),
    ("sagemaker", "delete_training_job", {"TrainingJobName": "gone"}, "ValidationException"),
    ("sagemaker", "list_training_jobs", {"NextToken": "nonsense"}, "ValidationException"),
    ("sagemaker", "list_processing_jobs", {"MaxResults": 101}, "ValidationException"),
    ("sagemaker", "list_tags", {"ResourceArn": TRAINING_ARN}, "ValidationException"),
    ("sagemaker", "add_tags", {"ResourceArn": TRAINING_ARN, "Tags": [{"Key": "k", "Value": ""}]},
     "ValidationException"),
    ("sagemaker", "delete_tags", {"ResourceArn": TRAINING_ARN, "TagKeys": ["k"]}, "ValidationException"),
    ("sagemaker", "search", {"Resource": "TrainingJob", "NextToken": "x"}, "ValidationException"),
    ("logs", "create_log_group", {"logGroupName": OWN}, "ResourceAlreadyExistsException"),
    ("logs", "create_log_group", {"logGroupName": GROUP}, "InvalidParameterException"),
    ("logs", "create_log_group", {"logGroupName": "a b"}, "InvalidParameterException"),
    ("logs", "create_log_stream", {"logGroupName": OWN, "logStreamName": "s"}, "ResourceAlreadyExistsException"),
    ("logs", "create_log_stream", {"logGroupName": "/none", "logStreamName": "s"}, "ResourceNotFoundException"),
    ("logs", "describe_log_streams", {"logGroupName": "/none"}, "ResourceNotFoundException"),
    ("logs", "describe_log_streams", {"logGroupName": GROUP, "orderBy": "LastEventTime",
                                      "logStreamNamePrefix": "x/"}, "InvalidParameterException"),
    ("logs", "get_log_events", {"logGroupName": GROUP, "logStreamName": "gone/algo-1-1"},
     "ResourceNotFoundException"),
    ("logs", "get_log_events", {"logGroupName": "/none", "logStreamName": "s"}, "ResourceNotFoundException"),
    ("logs", "get_log_events", {"logGroupName": OWN, "logStreamName": "s", "nextToken": "x"},
     "InvalidParameterException"),
    ("logs", "filter_log_events", {"logGroupName": "/none"}, "ResourceNotFoundException"),
    ("logs", "filter_log_events", {"logGroupName": OWN, "filterPattern": '"open'}, "InvalidParameterException"),
    ("logs", "put_log_events", {"logGroupName": OWN, "logStreamName": "none",
                                "logEvents": [{"timestamp": 1, "message": "x"}]}, "ResourceNotFoundException"),
    ("logs", "put_log_events", {"logGroupName": OWN, "logStreamName": "s", "logEvents": [
        {"timestamp": 2, "message": "x"}, {"timestamp": 1, "message": "x"}]}, "InvalidParameterException"),
    ("logs", "delete_log_stream", {"logGroupName": OWN, "logStreamName": "none"}, "ResourceNotFoundException"),
    ("logs", "delete_log_group", {"logGroupName": "/none"}, "ResourceNotFoundException"),
    ("cloudwatch", "get_metric_statistics", {"Namespace": "n", "MetricName": "m", "StartTime": 1, "EndTime": 2,
                                             "Period": 60}, "MissingParameter"),
    ("cloudwatch", "get_metric_statistics", {
        "Namespace": "n", "MetricName": "m", "StartTime": 1, "EndTime": 10**6, "Period": 1, "Statistics": ["Sum"]},
     "InvalidParameterCombination"),
    ("cloudwatch", "put_metric_data", {"Namespace": "n", "MetricData": [{"MetricName": "m", "Value": 1e999}]},
     "SerializationException"),
    ("cloudwatch", "put_metric_data", {"Namespace": "n", "MetricData": [
        {"MetricName": "m", "Value": 1, "Timestamp": 1}]}, "InvalidParameterValue"),
    ("cloudwatch", "list_metrics", {"NextToken": "nonsense"}, "InvalidParameterValue"),
    ("sqs", "get_queue_url", {"QueueName": "none"}, "AWS.SimpleQueueService.NonExistentQueue"),
    ("sqs", "create_queue", {"QueueName": "wire", "Attributes": {"DelaySeconds": "9"}}, "QueueAlreadyExists"),
    ("sqs", "create_queue", {"QueueName": "other", "Attributes": {"Nonsense": "9"}}, "InvalidParameterValue"),
    ("sqs", "set_queue_attributes", {"QueueUrl": "{queue}", "Attributes": {"DelaySeconds": "x"}},
     "InvalidAttributeValue"),
    ("sqs", "delete_message", {"QueueUrl": "{queue}", "ReceiptHandle": "x"}, "ReceiptHandleIsInvalid"),
    ("sqs", "change_message_visibility", {"QueueUrl": "{queue}", "ReceiptHandle": "1-x", "VisibilityTimeout": 1},
     "AWS.SimpleQueueService.MessageNotInflight"),
    ("sqs", "send_message_batch", {"QueueUrl": "{queue}", "Entries": []},
     "AWS.SimpleQueueService.EmptyBatchRequest"),
    *[("sqs", name, {"QueueUrl": "{nowhere}", **more}, "AWS.SimpleQueueService.NonExistentQueue")
      for name, more in (("send_message", {"MessageBody": "x"}), ("receive_message", {}), ("purge_queue", {}),
                         ("delete_queue", {}), ("get_queue_attributes", {}), ("set_queue_attributes", {"Attributes": {}}),
                         ("delete_message", {"ReceiptHandle": "1-x"}),
                         ("change_message_visibility", {"ReceiptHandle": "1-x", "VisibilityTimeout": 1}))],
    ("iam", "get_user", {}, "InvalidAction"),
    ("sts", "get_session_token", {}, "InvalidAction"),
]


@pytest.fixture(scope="module")
def asked_wrongly(platform):
    """The clients, and a queue and a group that are there."""
    clients = {name: platform.client(name, parameter_validation=False) for name in {each[0] for each in ERRORS}}
    url = clients["sqs"].create_queue(QueueName="wire")["QueueUrl"]
    clients["logs"].create_log_group(logGroupName=OWN)
    clients["logs"].create_log_stream(logGroupName=OWN, logStreamName="s")
    return clients, {"{queue}": url, "{nowhere}": url.replace("/wire", "/nowhere")}


@pytest.mark.parametrize("service, operation, arguments, code", ERRORS,
                         ids=[f"{i}-{each[1]}" for i, each in enumerate(ERRORS)])
def test_an_error_has_the_name_that_clients_catch(asked_wrongly, service, operation, arguments, code):
    clients, words = asked_wrongly
    arguments = {name: words.get(value, value) if isinstance(value, str) else value
                 for name, value in arguments.items()}
    assert error_of(getattr(clients[service], operation), **arguments) == (code, 400)


# Many commands in one process: the CLI takes a second to start.
CLI = """
import contextlib, io, json, sys
from awscli.clidriver import create_clidriver
said = []
driver = create_clidriver()
for command in json.load(sys.stdin):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = driver.main(command)
    said.append([code, out.getvalue(), err.getvalue()])
json.dump(said, sys.stdout)
"""


def test_the_aws_cli_speaks_to_it(platform, tmp_path):
    assert f'"Account": "{ACCOUNT}"' in aws(platform, "sts", "get-caller-identity")
    (tmp_path / "f").write_text("text")
    job = smallest_job("by-cli", Tags=[{"Key": "team", "Value": "x"}])
    job["AlgorithmSpecification"]["ContainerEntrypoint"] = ["sleep", "600"]
    process = {"ProcessingJobName": "by-cli", "RoleArn": ROLE,
               "AppSpecification": {"ImageUri": IMAGE, "ContainerEntrypoint": ["sleep", "600"]},
               "ProcessingResources": {"ClusterConfig": {"InstanceCount": 1, "InstanceType": "ml.m5.large",
                                                         "VolumeSizeInGB": 1}}}
    arn = TRAINING_ARN.replace("gone", "by-cli")
    stream = ["--log-group-name", "/cli", "--log-stream-name", "s"]
    url = f"{platform.url}/{ACCOUNT}/by-cli"
    at = ["--endpoint-url", platform.url]  # `aws sqs` has an address of its own, whatever the environment says
    span = ["--start-time", "2020-01-01T00:00:00Z", "--end-time", "2020-01-02T00:00:00Z", "--period", "60"]
    steps = [  # a command, and what it says
        (["s3", "cp", str(tmp_path / "f"), f"s3://{BUCKET}/cli/f"], "upload"),
        (["s3", "ls", f"s3://{BUCKET}/cli/"], " f"),
        (["sagemaker", "create-training-job", "--cli-input-json", json.dumps(job)], arn),
        (["sagemaker", "describe-training-job", "--training-job-name", "by-cli"], '"InProgress"'),
        (["sagemaker", "list-training-jobs", "--name-contains", "by-cli"], "TrainingJobSummaries"),
        (["sagemaker", "update-training-job", "--training-job-name", "by-cli", "--resource-config",
          "KeepAlivePeriodInSeconds=0"], arn),
        (["sagemaker", "add-tags", "--resource-arn", arn, "--tags", "Key=a,Value=b"], '"b"'),
        (["sagemaker", "list-tags", "--resource-arn", arn], '"team"'),
        (["sagemaker", "delete-tags", "--resource-arn", arn, "--tag-keys", "a"], ""),
        (["sagemaker", "search", "--resource", "TrainingJob", "--search-expression",
          "Filters=[{Name=Tags.team,Operator=Equals,Value=x}]"], arn),
        (["sagemaker", "stop-training-job", "--training-job-name", "by-cli"], ""),
        (["sagemaker", "wait", "training-job-completed-or-stopped", "--training-job-name", "valid"],
         "ValidationException"),
        (["sagemaker", "create-processing-job", "--cli-input-json", json.dumps(process)], ":processing-job/by-cli"),
        (["sagemaker", "describe-processing-job", "--processing-job-name", "by-cli"], "ProcessingJobStatus"),
        (["sagemaker", "list-processing-jobs"], "by-cli"),
        (["sagemaker", "stop-processing-job", "--processing-job-name", "by-cli"], ""),
        (["logs", "describe-log-groups"], GROUP),
        (["logs", "describe-log-streams", "--log-group-name", GROUP, "--log-stream-name-prefix", "gone/"],
         "logStreams"),
        (["logs", "create-log-group", "--log-group-name", "/cli"], ""),
        (["logs", "create-log-stream", *stream], ""),
        (["logs", "put-log-events", *stream, "--log-events", f"timestamp={int(time.time() * 1000)},message=said"], ""),
        (["logs", "get-log-events", *stream], '"said"'),
        (["logs", "filter-log-events", "--log-group-name", "/cli", "--filter-pattern", "said"], '"said"'),
        (["logs", "delete-log-stream", *stream], ""),
        (["logs", "delete-log-group", "--log-group-name", "/cli"], ""),
        (["cloudwatch", "put-metric-data", "--namespace", "Cli", "--metric-name", "m", "--value", "2"], ""),
        (["cloudwatch", "list-metrics", "--namespace", "Cli"], '"m"'),
        (["cloudwatch", "get-metric-statistics", "--namespace", "Cli", "--metric-name", "m", "--statistics", "Sum",
          *span], "Datapoints"),
        (["sqs", "create-queue", *at, "--queue-name", "by-cli"], url),
        (["sqs", "send-message", *at, "--queue-url", url, "--message-body", "hello"], "MessageId"),
        (["sqs", "receive-message", *at, "--queue-url", url], '"hello"'),
        (["sqs", "delete-queue", *at, "--queue-url", url], ""),
        (["iam", "get-role", "--role-name", "SageMakerRole"], ROLE),
    ]
    done = subprocess.run([sys.executable, "-c", CLI], check=True, capture_output=True, text=True,
                          input=json.dumps([step[0] for step in steps]), timeout=WAIT_SECONDS,
                          env=platform.environment())
    for (command, wanted), (code, out, err) in zip(steps, json.loads(done.stdout), strict=True):
        assert (code == 0) == (wanted != "ValidationException") and wanted in out + err, (command, code, out, err)


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
