"""What is left of a served folder when the power is cut: the folder lies on a file system in a file,
and a copy of that file, mounted anew, is what a machine finds that lost all that was not synced."""

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import threading
import time

import botocore.exceptions
import pytest

from served import WAIT_SECONDS, error_of, keys_of, served

MIB = 1 << 20
# The kernel writes by itself only what is thirty seconds old, and journals every five minutes:
# what these tests find on the disk is there because the gateway asked for it.
OPTIONS = "loop,commit=300,noauto_da_alloc,noatime"


def mount(image, folder):
    folder.mkdir()
    return subprocess.run(["mount", "-t", "ext4", "-o", OPTIONS, image, folder],
                          capture_output=True, text=True)


class Disk:
    def __init__(self, folder, stack):
        self.folder = folder
        self.image = folder / "image"
        self.path = folder / "mounted"
        self.cuts = 0
        with self.image.open("wb") as file:
            file.truncate(192 * MIB)
        subprocess.run(["mkfs.ext4", "-q", "-F", self.image], check=True)
        mounted = mount(self.image, self.path)
        if mounted.returncode != 0:
            pytest.skip(f"NOT TESTED: a file cannot be mounted here: {mounted.stderr.strip()}")
        stack.callback(subprocess.run, ["umount", self.path], check=True)
        os.sync()

    def _digest(self):
        with self.image.open("rb") as file:
            return hashlib.file_digest(file, "md5").digest()

    def _copy(self):
        """Of one instant: nothing was written while it was made."""
        copy = self.folder / f"cut-{self.cuts}"
        self.cuts += 1
        end = time.monotonic() + WAIT_SECONDS
        before = None
        while before != (before := self._digest()):
            assert time.monotonic() < end, "the disk does not come to rest"
            subprocess.run(["cp", "--sparse=always", self.image, copy], check=True)
        return copy

    @contextlib.contextmanager
    def cut(self, gateway):
        """The gateway that runs after the power was cut now; the one of before goes on."""
        gateway.process.send_signal(signal.SIGSTOP)
        try:
            copy = self._copy()
        finally:
            gateway.process.send_signal(signal.SIGCONT)
        after = self.folder / f"after-{self.cuts}"
        mounted = mount(copy, after)
        assert mounted.returncode == 0, mounted.stderr
        try:
            with served(after / "served") as again:
                yield again
        finally:
            subprocess.run(["umount", after], check=True)
            copy.unlink()


@pytest.fixture
def disk(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("NOT TESTED: only root can mount the file system whose power is cut")
    if shutil.which("mkfs.ext4") is None:
        pytest.skip("NOT TESTED: mkfs.ext4 is not installed; apt-get install e2fsprogs")
    with contextlib.ExitStack() as stack:
        made = Disk(tmp_path, stack)
        (made.path / "served").mkdir()
        yield made


def content_of(s3, key):
    return s3.get_object(Bucket="bucket", Key=key)["Body"].read()


def test_what_was_answered_outlives_a_power_cut(disk):
    body = os.urandom(6 * MIB)
    rule = {"Id": "q", "QueueArn": "arn:aws:sqs:us-east-1:123456789012:q", "Events": ["s3:ObjectCreated:*"]}
    with served(disk.path / "served") as gateway:
        keys = gateway.exports()
        s3 = gateway.client()
        s3.create_bucket(Bucket="bucket")
        with disk.cut(gateway) as after:
            assert after.exports()["AWS_SECRET_ACCESS_KEY"] == keys["AWS_SECRET_ACCESS_KEY"]
            after.client().head_bucket(Bucket="bucket")
        for key in ("plain", "deep/er/key", "odd//key"):
            s3.put_object(Bucket="bucket", Key=key, Body=body, Metadata={"m": key})
            with disk.cut(gateway) as after:
                got = after.client().get_object(Bucket="bucket", Key=key, ChecksumMode="ENABLED")
                assert (got["Body"].read(), got["Metadata"]) == (body, {"m": key})
        s3.copy_object(Bucket="bucket", Key="copy", CopySource={"Bucket": "bucket", "Key": "plain"})
        s3.put_object(Bucket="bucket", Key="plain", Body=b"newer")
        with disk.cut(gateway) as after:
            assert content_of(after.client(), "copy") == body
            assert content_of(after.client(), "plain") == b"newer"
        s3.delete_object(Bucket="bucket", Key="plain")
        s3.put_bucket_notification_configuration(
            Bucket="bucket", NotificationConfiguration={"QueueConfigurations": [rule]})
        with disk.cut(gateway) as after:
            client = after.client()
            assert error_of(client.get_object, Bucket="bucket", Key="plain") == ("NoSuchKey", 404)
            assert client.get_bucket_notification_configuration(Bucket="bucket")["QueueConfigurations"] == [rule]
        upload = {"Bucket": "bucket", "Key": "parts"}
        upload["UploadId"] = s3.create_multipart_upload(**upload)["UploadId"]
        parts = [{"PartNumber": number, "ETag": s3.upload_part(**upload, PartNumber=number, Body=body)["ETag"]}
                 for number in (1, 2)]
        s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})
        with disk.cut(gateway) as after:
            assert content_of(after.client(), "parts") == 2 * body
            assert keys_of(after.client(), "bucket") == ["copy", "deep/er/key", "odd//key", "parts"]


def test_a_power_cut_at_any_instant_leaves_the_old_object_or_the_new(disk):
    contents = [os.urandom(2 * MIB + number) for number in range(2)]
    known = {f'"{hashlib.md5(content).hexdigest()}"': content for content in contents}
    large = [os.urandom(5 * MIB), os.urandom(1000)]
    digests = b"".join(hashlib.md5(piece).digest() for piece in large)
    known[f'"{hashlib.md5(digests).hexdigest()}-2"'] = b"".join(large)
    with served(disk.path / "served") as gateway:
        s3 = gateway.client(retries={"total_max_attempts": 3})
        s3.create_bucket(Bucket="bucket")
        for key in ("k", "odd//k"):
            s3.put_object(Bucket="bucket", Key=key, Body=contents[0])
        stopped = threading.Event()

        def write_in_parts(key):
            upload = {"Bucket": "bucket", "Key": key}
            upload["UploadId"] = s3.create_multipart_upload(**upload)["UploadId"]
            parts = [{"PartNumber": number, "ETag": s3.upload_part(**upload, PartNumber=number, Body=piece)["ETag"]}
                     for number, piece in enumerate(large, 1)]
            s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})

        def write():
            number = 0
            with contextlib.suppress(botocore.exceptions.BotoCoreError):
                while not stopped.is_set():
                    number += 1
                    for key in ("k", "odd//k", f"new/{number % 5}"):
                        s3.put_object(Bucket="bucket", Key=key, Body=contents[number % 2])
                    s3.delete_object(Bucket="bucket", Key=f"new/{(number + 2) % 5}")
                    write_in_parts("k" if number % 2 else "in parts")

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for round_number in range(8):
                time.sleep(0.011 * round_number)
                with disk.cut(gateway) as after:
                    client = after.client()
                    keys = keys_of(client, "bucket")
                    assert {"k", "odd//k"} <= set(keys)
                    for key in keys:
                        got = client.get_object(Bucket="bucket", Key=key)
                        assert got["Body"].read() == known[got["ETag"]], key
                    assert list((after.folder / ".yard" / "tmp").iterdir()) == []
        finally:
            stopped.set()
            writer.join()
