"""What a gateway does with liars, thieves, full disks and its own death."""

import contextlib
import datetime
import hashlib
import os
import pathlib
import socket
import stat
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

import botocore.auth
import botocore.awsrequest
import botocore.credentials
import botocore.exceptions
import pytest
import urllib3.exceptions

from served import BIN, error_of, served

MIB = 1 << 20
WAIT_SECONDS = 60  # only a failure comes near it


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    (folder / "b").mkdir()
    with served(folder) as running:
        yield running


def objects_in(folder):
    return sorted(str(path.relative_to(folder)) for path in pathlib.Path(folder).rglob("*") if path.is_file())


def temporaries(gateway):
    return list((gateway.folder / ".yard" / "tmp").iterdir())


def wait_until(condition):
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def connect(gateway):
    address = urllib.parse.urlsplit(gateway.url)
    return socket.create_connection((address.hostname, address.port), timeout=WAIT_SECONDS)


def put_head(s3, key, size):
    """The head of a signed PUT, as bytes."""
    url = urllib.parse.urlsplit(s3.generate_presigned_url(
        "put_object", Params={"Bucket": "b", "Key": key}, ExpiresIn=600))
    return (f"PUT {url.path}?{url.query} HTTP/1.1\r\nHost: {url.netloc}\r\n"
            f"Content-Length: {size}\r\n\r\n").encode()


def test_an_unknown_key_or_a_wrong_secret_is_refused(gateway):
    unknown = gateway.client(aws_access_key_id="YARDNOBODY", aws_secret_access_key="x")
    assert error_of(unknown.list_buckets) == ("InvalidAccessKeyId", 403)
    forged = gateway.client(aws_secret_access_key="guessed")
    assert error_of(forged.list_buckets) == ("SignatureDoesNotMatch", 403)
    assert error_of(forged.put_object, Bucket="b", Key="k", Body=b"x") == ("SignatureDoesNotMatch", 403)
    assert error_of(forged.head_object, Bucket="b", Key="k")[1] == 403


def test_a_skewed_clock_is_refused(gateway, monkeypatch):
    exports = gateway.exports()
    keys = botocore.credentials.Credentials(exports["AWS_ACCESS_KEY_ID"], exports["AWS_SECRET_ACCESS_KEY"])
    now = datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None)
    for minutes, status in ((-16, 403), (-14, 200), (14, 200), (16, 403)):
        # botocore's own signer: the CRT, which boto3 uses where it is installed, has another clock.
        monkeypatch.setattr(botocore.auth, "get_current_datetime",
                            lambda *_: now + datetime.timedelta(minutes=minutes))
        request = botocore.awsrequest.AWSRequest(method="GET", url=gateway.url + "/")
        botocore.auth.S3SigV4Auth(keys, "s3", "us-east-1").add_auth(request)
        try:
            answer = urllib.request.urlopen(urllib.request.Request(gateway.url + "/", headers=dict(request.headers)))
        except urllib.error.HTTPError as failed:
            answer = failed
        assert answer.status == status
        assert status == 200 or b"<Code>RequestTimeTooSkewed</Code>" in answer.read()


def test_a_body_that_is_not_the_signed_one_is_refused(gateway):
    s3 = gateway.client()

    def tamper(request, **_):
        request.body = b"other bytes"

    s3.meta.events.register("before-send.s3.PutObject", tamper)
    with pytest.raises(botocore.exceptions.ClientError) as failed:
        s3.put_object(Bucket="b", Key="k", Body=b"these bytes")
    assert failed.value.response["Error"]["Code"] in ("XAmzContentSHA256Mismatch", "BadDigest")
    assert objects_in(gateway.folder / "b") == [] and temporaries(gateway) == []


def test_a_truncated_body_leaves_nothing(gateway, s3):
    with connect(gateway) as client:
        client.sendall(put_head(s3, "cut", 1 * MIB) + bytes(1000))
        wait_until(lambda: temporaries(gateway))
        client.shutdown(socket.SHUT_WR)
        answer = client.recv(1 << 16)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 4")
    wait_until(lambda: not temporaries(gateway))
    assert objects_in(gateway.folder / "b") == []


def test_a_file_rewritten_in_place_while_it_is_read_breaks_the_connection(gateway, s3):
    path = gateway.folder / "b" / "rewritten"
    path.write_bytes(bytes(64 * MIB))
    body = s3.get_object(Bucket="b", Key="rewritten")["Body"]
    body.read(MIB)  # the rest waits for us
    with path.open("r+b") as file:
        file.seek(63 * MIB)
        file.write(b"another content")
    with pytest.raises((botocore.exceptions.BotoCoreError, urllib3.exceptions.HTTPError)):
        body.read()
    path.unlink()


@pytest.mark.parametrize("said", [
    b"GET / HTTP/1.1\r\nHos", b"PUT /b/k HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n",
    b"PUT /b/k HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3e8\r\nx",
    b"PUT /b/k HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\n"])
def test_clients_that_never_end_what_they_say_hold_up_nobody(gateway, s3, said):
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(connect(gateway)) for _ in range(300)]
        for client in slow:
            client.sendall(said)
        if b"PUT" in said:
            for client in slow:
                assert client.recv(1 << 16).startswith(b"HTTP/1.1 403")
        assert s3.list_buckets()["Buckets"][0]["Name"] == "b"


def test_an_oversized_head_is_refused(gateway):
    with connect(gateway) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nx-amz-meta-a: " + b"a" * 100_000 + b"\r\n\r\n")
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 431")


def test_expect_100_continue_is_answered_before_the_body_or_refused(gateway, s3):
    head = put_head(s3, "expected", 5).replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n")
    with connect(gateway) as client:
        client.sendall(head)
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 100")
        client.sendall(b"12345")
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 200")
    s3.delete_object(Bucket="b", Key="expected")
    with connect(gateway) as client:  # a wrong signature is told before the body is asked for
        client.sendall(head.replace(b"Signature=", b"Signature=0"))
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 403")


def test_the_credentials_are_the_owners_alone_and_stay(tmp_path):
    with served(tmp_path) as first:
        path = tmp_path / ".yard" / "credentials.json"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert first.url.startswith("http://127.0.0.1:")
        exports = first.exports()
    with served(tmp_path) as again:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            assert again.exports()[name] == exports[name]
    path.chmod(0o644)
    refused = subprocess.run([BIN / "yard", "s3", "serve", tmp_path, "--listen", "127.0.0.1:0"],
                             capture_output=True, text=True, timeout=WAIT_SECONDS)
    assert refused.returncode == 2 and "credentials.json" in refused.stderr


def test_a_second_gateway_on_the_same_folder_is_refused(gateway):
    second = subprocess.run([BIN / "yard", "s3", "serve", gateway.folder, "--listen", "127.0.0.1:0"],
                            capture_output=True, text=True, timeout=WAIT_SECONDS)
    assert second.returncode == 6 and "another gateway" in second.stderr


def test_a_gateway_killed_in_the_middle_of_an_upload_leaves_nothing_half(tmp_path):
    (tmp_path / "b").mkdir()
    with served(tmp_path) as gateway:
        s3 = gateway.client()
        s3.put_object(Bucket="b", Key="old", Body=b"old content", Metadata={"m": "1"})
        with contextlib.ExitStack() as stack:
            for key in ("old", "new", "a//b"):
                client = stack.enter_context(connect(gateway))
                client.sendall(put_head(s3, key, 4 * MIB) + os.urandom(2 * MIB))
            wait_until(lambda: sum(path.stat().st_size for path in temporaries(gateway)) >= 6 * MIB)
            gateway.kill()
        assert objects_in(tmp_path / "b") == ["old"] and len(temporaries(gateway)) == 3
    with served(tmp_path) as gateway:
        s3 = gateway.client()
        assert temporaries(gateway) == []
        got = s3.get_object(Bucket="b", Key="old")
        assert (got["Body"].read(), got["Metadata"]) == (b"old content", {"m": "1"})
        assert [entry["Key"] for entry in s3.list_objects_v2(Bucket="b")["Contents"]] == ["old"]


def test_whenever_it_is_killed_the_object_is_the_old_one_or_the_new_one(tmp_path):
    (tmp_path / "b").mkdir()
    contents = [os.urandom(3 * MIB + i) for i in range(2)]
    known = {f'"{hashlib.md5(content).hexdigest()}"': content for content in contents}
    for round_number in range(6):
        with served(tmp_path) as gateway:
            s3 = gateway.client()
            s3.put_object(Bucket="b", Key="k", Body=contents[0])
            killer = threading.Timer(0.01 + 0.013 * round_number, gateway.kill)
            killer.start()
            with contextlib.suppress(botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError):
                while gateway.process.poll() is None:
                    for content in contents:
                        s3.put_object(Bucket="b", Key="k", Body=content)
            killer.join()
        with served(tmp_path) as gateway:
            got = gateway.client().get_object(Bucket="b", Key="k")
            assert got["Body"].read() == known[got["ETag"]]
            assert objects_in(tmp_path / "b") == ["k"] and temporaries(gateway) == []


def test_a_multipart_upload_goes_on_after_the_gateway_was_killed(tmp_path):
    (tmp_path / "b").mkdir()
    place = {"Bucket": "b", "Key": "k"}
    pieces = [os.urandom(5 * MIB), os.urandom(10)]
    with served(tmp_path) as gateway:
        s3 = gateway.client()
        place["UploadId"] = s3.create_multipart_upload(**place)["UploadId"]
        first = s3.upload_part(**place, PartNumber=1, Body=pieces[0])["ETag"]
        gateway.kill()
    with served(tmp_path) as gateway:
        s3 = gateway.client()
        second = s3.upload_part(**place, PartNumber=2, Body=pieces[1])["ETag"]
        s3.complete_multipart_upload(**place, MultipartUpload={
            "Parts": [{"PartNumber": 1, "ETag": first}, {"PartNumber": 2, "ETag": second}]})
        assert s3.get_object(Bucket="b", Key="k")["Body"].read() == b"".join(pieces)
        assert list((tmp_path / ".yard" / "uploads").iterdir()) == []


def test_whenever_it_is_killed_in_a_completion_there_is_the_upload_or_the_whole_object(tmp_path):
    (tmp_path / "b").mkdir()
    pieces = [os.urandom(5 * MIB), os.urandom(5 * MIB), os.urandom(5 * MIB + 1), os.urandom(99)]
    for round_number in range(8):
        in_place = round_number % 2 == 0  # else the third part does not fit where it belongs
        bodies = pieces[:2] + pieces[3:] if in_place else pieces
        upload = {"Bucket": "b", "Key": f"k{round_number}"}
        with served(tmp_path) as gateway:
            s3 = gateway.client()
            upload["UploadId"] = s3.create_multipart_upload(**upload)["UploadId"]
            parts = {"Parts": [
                {"PartNumber": number, "ETag": s3.upload_part(**upload, PartNumber=number, Body=body)["ETag"]}
                for number, body in enumerate(bodies, 1)]}
            killer = threading.Timer(0.002 * round_number, gateway.kill)
            killer.start()
            with contextlib.suppress(botocore.exceptions.BotoCoreError):
                s3.complete_multipart_upload(**upload, MultipartUpload=parts)
            killer.join()
        with served(tmp_path) as gateway:
            s3 = gateway.client()
            assert temporaries(gateway) == []
            # Whatever the client heard: it asks again, and the object is there.
            s3.complete_multipart_upload(**upload, MultipartUpload=parts)
            assert s3.get_object(Bucket="b", Key=upload["Key"])["Body"].read() == b"".join(bodies)
            assert list((tmp_path / ".yard" / "uploads").iterdir()) == []


def test_two_clients_that_race_for_a_key_leave_the_object_of_one(gateway, s3):
    bodies = [bytes([letter]) * (5 * MIB + letter) for letter in (1, 2)]
    uploads = []
    for body in bodies:
        upload = {"Bucket": "b", "Key": "raced"}
        upload["UploadId"] = s3.create_multipart_upload(**upload)["UploadId"]
        etag = s3.upload_part(**upload, PartNumber=1, Body=body)["ETag"]
        uploads.append({**upload, "MultipartUpload": {"Parts": [{"PartNumber": 1, "ETag": etag}]}})
    outcomes = []

    def run(call, **arguments):
        try:
            call(**arguments)
            outcomes.append("done")
        except botocore.exceptions.ClientError as refused:
            outcomes.append(refused.response["Error"]["Code"])

    racers = [threading.Thread(target=run, args=(s3.complete_multipart_upload,), kwargs={**upload, "IfNoneMatch": "*"})
              for upload in uploads]
    # And each of them twice, as a client that is impatient.
    racers += [threading.Thread(target=run, args=(s3.complete_multipart_upload,), kwargs={**upload, "IfNoneMatch": "*"})
               for upload in uploads]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert "done" in outcomes and set(outcomes) <= {"done", "PreconditionFailed", "OperationAborted"}
    assert s3.get_object(Bucket="b", Key="raced")["Body"].read() in bodies
    s3.delete_object(Bucket="b", Key="raced")
    for upload in s3.list_multipart_uploads(Bucket="b").get("Uploads", []):
        s3.abort_multipart_upload(Bucket="b", Key=upload["Key"], UploadId=upload["UploadId"])


def test_a_completion_whose_answer_was_lost_can_be_asked_for_again(tmp_path):
    (tmp_path / "b").mkdir()
    upload = {"Bucket": "b", "Key": "k"}
    with served(tmp_path) as gateway:
        s3 = gateway.client()
        upload["UploadId"] = s3.create_multipart_upload(**upload)["UploadId"]
        part = {"PartNumber": 1, "ETag": s3.upload_part(**upload, PartNumber=1, Body=b"x")["ETag"]}
        upload["MultipartUpload"] = {"Parts": [part]}
        etag = s3.complete_multipart_upload(**upload, IfNoneMatch="*")["ETag"]
        gateway.kill()
    with served(tmp_path) as gateway:
        s3 = gateway.client()
        again = s3.complete_multipart_upload(**upload, IfNoneMatch="*")
        assert (again["ETag"], again["Key"]) == (etag, "k")
        s3.put_object(Bucket="b", Key="k", Body=b"another")
        assert error_of(s3.complete_multipart_upload, **upload) == ("NoSuchUpload", 404)
        assert s3.get_object(Bucket="b", Key="k")["Body"].read() == b"another"


@pytest.fixture
def small_disk(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("NOT TESTED: only root can mount the small file system that is to be filled")
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", folder]).returncode != 0:
        pytest.skip("NOT TESTED: a tmpfs cannot be mounted here")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_full_disk_is_told_and_keeps_what_was_there(small_disk):
    (small_disk / "b").mkdir()
    full = ("InsufficientStorage", 507)
    with served(small_disk) as gateway:
        s3 = gateway.client(retries={"mode": "standard"})  # which would repeat what may pass
        s3.put_object(Bucket="b", Key="k", Body=b"old")
        assert error_of(s3.put_object, Bucket="b", Key="k", Body=bytes(30 * MIB)) == full
        assert s3.get_object(Bucket="b", Key="k")["Body"].read() == b"old"
        place = {"Bucket": "b", "Key": "m"}
        place["UploadId"] = s3.create_multipart_upload(**place)["UploadId"]

        def upload_part(number, size):
            return {"PartNumber": number,
                    "ETag": s3.upload_part(**place, PartNumber=number, Body=bytes(size))["ETag"]}

        def complete(*parts):
            return s3.complete_multipart_upload(**place, MultipartUpload={"Parts": list(parts)})

        # These have to be copied together, for which there is no room.
        apart = [upload_part(number, 7 * MIB) for number in (1, 3)]
        assert error_of(lambda: complete(*apart)) == full
        assert error_of(s3.upload_part, **place, PartNumber=4, Body=bytes(12 * MIB)) == full
        assert len(s3.list_parts(**place)["Parts"]) == 2
        assert temporaries(gateway) == [] and objects_in(small_disk / "b") == ["k"]
        # These follow each other.
        complete(apart[0], upload_part(2, 7 * MIB), apart[1])
        assert s3.head_object(Bucket="b", Key="m")["ContentLength"] == 21 * MIB
        s3.delete_object(Bucket="b", Key="m")
        s3.put_object(Bucket="b", Key="after", Body=bytes(8 * MIB))
