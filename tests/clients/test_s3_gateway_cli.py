"""The AWS CLI against the gateway."""

import filecmp
import os
import pathlib
import subprocess
import sys
import urllib.request


from served import BIN, error_of, keys_of, served

MIB = 1 << 20
AWS = pathlib.Path(sys.executable).with_name("aws")


def aws(gateway, *arguments, **options):
    return subprocess.run([AWS, *arguments], env=gateway.environment(), check=True, capture_output=True,
                          text=True, **options).stdout


def test_aws_cli(gateway, s3, tmp_path):
    source = tmp_path / "tree"
    names = ["a.txt", "sub/b c.bin", "sub/deep/ü+%&=.dat", "sub.txt", "日本/語", "x" * 200 + "/y", "[1]/*", "q?#;,'"]
    for name in names:
        path = source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(1000))
    (source / "big").write_bytes(os.urandom(20 * MIB))
    aws(gateway, "s3", "mb", "s3://cli-tree")
    aws(gateway, "s3", "sync", str(source), "s3://cli-tree/p")
    assert sorted(keys_of(s3, "cli-tree")) == sorted(f"p/{name}" for name in [*names, "big"])
    assert aws(gateway, "s3", "sync", str(source), "s3://cli-tree/p") == ""  # nothing is left to do
    aws(gateway, "s3", "sync", "s3://cli-tree/p", str(tmp_path / "back"))
    for name in [*names, "big"]:
        assert filecmp.cmp(source / name, tmp_path / "back" / name, shallow=False), name
    aws(gateway, "s3", "cp", "s3://cli-tree/p/big", "s3://cli-tree/copy of big")
    aws(gateway, "s3", "mv", "s3://cli-tree/copy of big", "s3://cli-tree/moved/")
    assert "moved/" in aws(gateway, "s3", "ls", "s3://cli-tree")
    assert aws(gateway, "s3", "ls", "--recursive", "s3://cli-tree/moved/").split()[-1] == "big"
    url = aws(gateway, "s3", "presign", "s3://cli-tree/p/a.txt").strip()
    assert urllib.request.urlopen(url).read() == (source / "a.txt").read_bytes()
    streamed = subprocess.run([AWS, "s3", "cp", "s3://cli-tree/p/sub/b c.bin", "-"], check=True, capture_output=True,
                              env=gateway.environment()).stdout
    assert streamed == (source / "sub/b c.bin").read_bytes()
    (source / "a.txt").unlink()
    aws(gateway, "s3", "sync", "--delete", str(source), "s3://cli-tree/p")
    assert "p/a.txt" not in keys_of(s3, "cli-tree")
    aws(gateway, "s3", "rb", "--force", "s3://cli-tree")
    assert error_of(s3.head_bucket, Bucket="cli-tree")[1] == 404


def test_aws_cli_notification_configuration(gateway, s3):
    bucket = "told-of"
    s3.create_bucket(Bucket=bucket)
    config = ('{"QueueConfigurations":[{"Id":"q","QueueArn":"arn:aws:sqs:us-east-1:123456789012:queue",'
              '"Events":["s3:ObjectCreated:*"],"Filter":{"Key":{"FilterRules":[{"Name":"prefix","Value":"in/"}]}}}]}')
    aws(gateway, "s3api", "put-bucket-notification-configuration", "--bucket", bucket,
        "--notification-configuration", config)
    got = s3.get_bucket_notification_configuration(Bucket=bucket)["QueueConfigurations"]
    assert got == [{"Id": "q", "QueueArn": "arn:aws:sqs:us-east-1:123456789012:queue",
                    "Events": ["s3:ObjectCreated:*"],
                    "Filter": {"Key": {"FilterRules": [{"Name": "prefix", "Value": "in/"}]}}}]
    s3.put_bucket_notification_configuration(Bucket=bucket, NotificationConfiguration={})
    assert "QueueConfigurations" not in s3.get_bucket_notification_configuration(Bucket=bucket)


def test_env_waits_for_a_gateway_that_is_just_starting(tmp_path):
    env = subprocess.Popen([BIN / "yard", "s3", "env", tmp_path], stdout=subprocess.PIPE, text=True)
    with served(tmp_path) as gateway:
        said = env.communicate()[0]
        assert env.returncode == 0
        assert gateway.url in said
    with served(tmp_path, "--region", "elsewhere-1") as gateway:
        assert gateway.exports()["AWS_REGION"] == "elsewhere-1"
