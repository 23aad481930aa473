"""Uploads by HTML forms, as boto3 signs them."""

import base64
import contextlib
import hashlib
import os
import select
import socket
import urllib.parse
import xml.etree.ElementTree

import pytest
import urllib3

from served import WAIT_SECONDS, served

MIB = 1 << 20


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    (folder / "b").mkdir()
    with served(folder) as running:
        yield running


def post(url, fields, body, filename="f.bin", redirect=False):
    form = [*fields.items(), ("file", (filename, body, "application/x-of-the-file"))]
    return urllib3.PoolManager().request("POST", url, fields=form, redirect=redirect, retries=False)


def code_of(answer):
    found = xml.etree.ElementTree.fromstring(answer.data).find("Code")
    return found.text, answer.status


@pytest.mark.parametrize("signature", ["s3", "s3v4"])
def test_a_form_that_boto3_signed_uploads_the_file(gateway, s3, signature):
    client = gateway.client(signature_version=signature)
    for size in (0, 1, 3 * MIB + 7):
        body = os.urandom(size)
        form = client.generate_presigned_post(
            "b", "dir/${filename}", Fields={"Content-Type": "image/png", "x-amz-meta-colour": "blue"},
            Conditions=[{"Content-Type": "image/png"}, {"x-amz-meta-colour": "blue"},
                        ["content-length-range", 0, 4 * MIB]])
        answer = post(form["url"], form["fields"], body, filename=f"{size} é.bin")
        assert (answer.status, answer.data) == (204, b"")
        assert answer.headers["ETag"] == f'"{hashlib.md5(body).hexdigest()}"'
        got = s3.get_object(Bucket="b", Key=f"dir/{size} é.bin")
        assert got["Body"].read() == body
        assert (got["ContentType"], got["Metadata"]) == ("image/png", {"colour": "blue"})


def test_what_the_policy_does_not_allow_is_refused_and_leaves_nothing(gateway, s3):
    form = s3.generate_presigned_post("b", "only/this", Conditions=[["content-length-range", 2, 10]])

    def refused(fields, body=b"12345", **arguments):
        return code_of(post(form["url"], {**form["fields"], **fields}, body, **arguments))

    assert refused({"key": "other"}) == ("AccessDenied", 403)
    assert refused({"x-amz-meta-extra": "1"}) == ("AccessDenied", 403)
    assert refused({}, b"12345678901") == ("EntityTooLarge", 400)
    assert refused({}, b"1") == ("EntityTooSmall", 400)
    policy = base64.b64encode(b'{"expiration": "2099-01-01T00:00:00Z", "conditions": []}').decode()
    assert refused({"policy": policy}) == ("SignatureDoesNotMatch", 403)
    assert code_of(post(form["url"], {"key": "k"}, b"x")) == ("AccessDenied", 403)
    expired = s3.generate_presigned_post("b", "k", ExpiresIn=-5)
    assert code_of(post(expired["url"], expired["fields"], b"x")) == ("AccessDenied", 403)
    elsewhere = form["url"].replace("/b", "/none")
    assert code_of(post(elsewhere, form["fields"], b"12345")) == ("NoSuchBucket", 404)
    twice = [*form["fields"].items(), ("key", "only/that"), ("file", ("f", b"12345"))]
    answer = urllib3.PoolManager().request("POST", form["url"], fields=twice, retries=False)
    assert code_of(answer) == ("InvalidArgument", 400)
    assert "Contents" not in s3.list_objects_v2(Bucket="b", Prefix="only/")
    assert list((gateway.folder / ".yard" / "tmp").iterdir()) == []


def test_the_form_says_what_is_answered(s3):
    def answer_to(**fields):
        form = s3.generate_presigned_post("b", "a b/k", Fields=fields,
                                          Conditions=[{name: value} for name, value in fields.items()])
        return post(form["url"], form["fields"], b"x")

    made = answer_to(success_action_status="201")
    root = xml.etree.ElementTree.fromstring(made.data)
    assert made.status == 201 and root.tag == "PostResponse"
    assert (root.find("Bucket").text, root.find("Key").text) == ("b", "a b/k")
    assert root.find("Location").text == made.headers["Location"]
    assert answer_to(success_action_status="200").status == 200
    assert answer_to(success_action_status="418").status == 204
    sent = answer_to(success_action_redirect="http://example.test/done?x=1")
    assert sent.status == 303
    query = urllib.parse.parse_qs(urllib.parse.urlsplit(sent.headers["Location"]).query)
    assert query == {"x": ["1"], "bucket": ["b"], "key": ["a b/k"], "etag": [sent.headers["ETag"]]}
    assert answer_to(success_action_redirect="javascript:alert(1)").status == 204


def test_checksums_of_a_form_are_verified(s3):
    digest = base64.b64encode(hashlib.sha256(b"content").digest()).decode()
    form = s3.generate_presigned_post("b", "k", Fields={"x-amz-checksum-sha256": digest},
                                      Conditions=[{"x-amz-checksum-sha256": digest}])
    assert code_of(post(form["url"], form["fields"], b"another")) == ("BadDigest", 400)
    assert post(form["url"], form["fields"], b"content").status == 204
    assert s3.head_object(Bucket="b", Key="k", ChecksumMode="ENABLED")["ChecksumSHA256"] == digest


def test_a_form_that_is_cut_or_malformed_leaves_nothing(gateway, s3):
    form = s3.generate_presigned_post("b", "cut")
    body, kind = urllib3.encode_multipart_formdata([*form["fields"].items(), ("file", ("f", b"x" * 1000))])
    address = urllib.parse.urlsplit(gateway.url)

    def send(sent, length, kind=kind):
        with socket.create_connection((address.hostname, address.port), timeout=WAIT_SECONDS) as client:
            client.sendall(f"POST /b HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Type: {kind}\r\n"
                           f"Content-Length: {length}\r\n\r\n".encode() + sent)
            client.shutdown(socket.SHUT_WR)
            return client.recv(1 << 16)

    assert send(body, len(body)).startswith(b"HTTP/1.1 204")
    s3.delete_object(Bucket="b", Key="cut")
    for sent in range(0, len(body) - 4, 61):
        assert not send(body[:sent], sent).startswith(b"HTTP/1.1 2")
        assert not send(body[:sent], len(body)).startswith(b"HTTP/1.1 2")
    assert send(body, len(body), "text/plain").startswith(b"HTTP/1.1 403")
    assert send(body, len(body), "multipart/form-data").startswith(b"HTTP/1.1 403")
    assert b"MalformedPOSTRequest" in send(body.replace(b"form-data", b"attachment"), len(body) + 5 * len(form["fields"]))
    assert "Contents" not in s3.list_objects_v2(Bucket="b", Prefix="cut")
    assert list((gateway.folder / ".yard" / "tmp").iterdir()) == []


@pytest.mark.parametrize("endless", [b"preamble ", b'--B\r\nContent-Disposition: form-data; name="a"\r\nx: y\r\n\r\n\r\n'])
def test_a_form_of_nobody_known_is_not_read_on_and_on(gateway, endless):
    address = urllib.parse.urlsplit(gateway.url)
    with socket.create_connection((address.hostname, address.port), timeout=WAIT_SECONDS) as client:
        client.sendall(f"POST /b HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Length: {1 << 40}\r\n"
                       "Content-Type: multipart/form-data; boundary=B\r\n\r\n".encode())
        sent = 0
        with contextlib.suppress(OSError):
            while sent < 64 * MIB and not select.select([client], [], [], 0)[0]:
                client.sendall(endless * 1000)
                sent += len(endless) * 1000
        assert sent < 64 * MIB
        with contextlib.suppress(ConnectionResetError):
            assert client.recv(1 << 16).startswith(b"HTTP/1.1 400")


def test_forms_that_never_end_hold_up_nobody(gateway, s3):
    address = urllib.parse.urlsplit(gateway.url)
    head = (f"POST /b HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Type: multipart/form-data; boundary=B\r\n"
            "Content-Length: 100000\r\n\r\n--B\r\n").encode()
    slow = []
    try:
        for _ in range(300):
            client = socket.create_connection((address.hostname, address.port), timeout=WAIT_SECONDS)
            slow.append(client)
            client.sendall(head)
        assert s3.list_buckets()["Buckets"][0]["Name"] == "b"
        s3.put_object(Bucket="b", Key="meanwhile", Body=b"x")
    finally:
        for client in slow:
            client.close()
