"""Our Signature V4 beside botocore and the AWS CRT, both directions, over generated requests."""
import base64
import datetime
import hashlib
import io
import json
import os
import pathlib
import random
import string
import subprocess
import urllib.parse

import boto3
import botocore.auth
import botocore.awsrequest
import botocore.config
import botocore.credentials
import botocore.crt.auth
import botocore.httpchecksum
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("YARD_BIN_DIR", ROOT / "build/release/bin"))

NOW = datetime.datetime(2026, 11, 30, 8, 37, 20)
UNIX_NOW = int(NOW.replace(tzinfo=datetime.timezone.utc).timestamp())
EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()
LONG_LIVED = botocore.credentials.Credentials("AKIAIOSFODNN7EXAMPLE", "wJalr/XUtn+FEMI=bPx")
TEMPORARY = botocore.credentials.Credentials("ASIATEMPORARY", "another secret", "to/ken+with==&odd")

KEY_PARTS = ["a", "Z", "09", " ", "  ", "+", "ü", "漢字", "😀", "//", "/", "..", "/../", "/./", ".",
             "%2F", "%", "%zz", "=", "&", "?", "#", "*", "~", "'", '"', "(", ")", "!", "$", ",", ";",
             ":", "@", "[", "]", "\\", "^", "`", "{", "|", "}", "<", ">", "-", "_", "\t", "\x01"]
QUERY_NAMES = ["prefix", "delimiter", "acl", "uploadId", "max-keys", "marker", "X", "x-id", "a-b",
               "a", "ü", "k=&", "response-content-type", "list-type", "part number"]
HEADER_VALUES = ["v", "two  spaces", "  around  ", "tab\tinside", "ü umlaut", 'quoted "a   b"', "",
                 "a,b", "a=b; c", "x" * 300]


@pytest.fixture(autouse=True)
def fixture_clock(monkeypatch):
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda *_: NOW)


def ask(questions):
    """The tool's answers, one for each question."""
    lines = "".join(json.dumps(q) + "\n" for q in questions)
    done = subprocess.run([BIN / "sigv4_tool"], input=lines.encode(), capture_output=True,
                          timeout=300)
    assert done.returncode == 0, done.stderr.decode()
    answers = [json.loads(line) for line in done.stdout.decode().splitlines()]
    assert len(answers) == len(questions)
    return answers


def random_key(rng):
    return "".join(rng.choice(KEY_PARTS) for _ in range(rng.randint(1, 8)))


def encode_path(rng, path):
    """As botocore does it, or with characters left as they are, as other clients do."""
    safe = rng.choice(["/~", "/~", "/~!'()*$,;:@&=+"])
    return urllib.parse.quote(path, safe=safe)


def random_query(rng):
    pieces = []
    for _ in range(rng.choice([0, 0, 1, 2, 4])):
        name = urllib.parse.quote(rng.choice(QUERY_NAMES), safe="-_.~")
        value = urllib.parse.quote(random_key(rng), safe=rng.choice(["-_.~", "-_.~/:+"]))
        pieces.append(rng.choice([f"{name}={value}", f"{name}={value}", f"{name}=", name]))
    if pieces and rng.random() < 0.2:
        pieces.append(pieces[0])
    return "&".join(pieces)


def random_headers(rng):
    headers = []
    for _ in range(rng.choice([0, 1, 3])):
        name = rng.choice(["x-amz-meta-a", "X-Amz-Meta-B", "Range", "Content-Type", "x-amz-acl",
                           "Cache-Control", "User-Agent", "Expect"])
        headers.append((name, rng.choice(HEADER_VALUES)))
    return headers


def random_request(rng, service, body=b""):
    host = rng.choice(["bucket.s3.amazonaws.com", "127.0.0.1:9000", "localhost"])
    url = f"{rng.choice(['http', 'https'])}://{host}/{encode_path(rng, random_key(rng))}"
    if query := random_query(rng):
        url += "?" + query
    method = "POST" if body else rng.choice(["GET", "PUT", "HEAD", "DELETE", "POST"])
    request = botocore.awsrequest.AWSRequest(method=method, url=url, data=body)
    for name, value in random_headers(rng):
        request.headers.add_header(name, value)
    request.context["payload_signing_enabled"] = service != "s3" or rng.random() < 0.5
    return request


def question(op, request, credentials, service, **more):
    """What the request, signed or not, looks like on the wire."""
    parts = urllib.parse.urlsplit(request.url)
    headers = [(name, value) for name, value in request.headers.items()]
    if not any(name.lower() == "host" for name, _ in headers):
        headers.insert(0, ("Host", parts.netloc))
    return {"op": op, "method": request.method, "path": parts.path, "query": parts.query,
            "headers": headers, "now": UNIX_NOW, "region": "eu-central-1", "service": service,
            "access_key": credentials.access_key, "secret_key": credentials.secret_key,
            "session_token": credentials.token or "", **more}


def changed_byte(rng, asked):
    """The same question with one byte changed where it is signed."""
    asked = json.loads(json.dumps(asked))
    spots = [("method", i) for i in range(len(asked["method"]))]
    for field in ("path", "query"):
        text = asked[field]
        spots += [(field, i) for i, c in enumerate(text)
                  if c.isalnum() and c.isascii() and "%" not in text[max(0, i - 2):i]]
    signed = asked["signed_headers"]
    for line, (name, value) in enumerate(asked["headers"]):
        if name.lower() in signed or name.lower() == "authorization":
            spots += [(line, i) for i, c in enumerate(value) if c.isalnum() and c.isascii()]
    where, i = rng.choice(spots)
    old = asked["headers"][where][1] if isinstance(where, int) else asked[where]
    new = old[:i] + rng.choice([c for c in string.ascii_letters + string.digits if c != old[i]]) \
        + old[i + 1:]
    if isinstance(where, int):
        asked["headers"][where][1] = new
    else:
        asked[where] = new
    return asked


def date_of(request):
    """In Unix seconds. The CRT, which boto3 signs by where it is installed, has a clock of its own."""
    text = request.headers["X-Amz-Date"]
    stamp = datetime.datetime.strptime(text.decode() if isinstance(text, bytes) else text,
                                       "%Y%m%dT%H%M%SZ")
    return int(stamp.replace(tzinfo=datetime.timezone.utc).timestamp())


def signed_headers_of(request):
    header = request.headers.get("Authorization")
    if header:
        return header.split("SignedHeaders=")[1].split(",")[0].split(";")
    query = urllib.parse.parse_qs(urllib.parse.urlsplit(request.url).query)
    return query["X-Amz-SignedHeaders"][0].split(";")


def assert_accepted_and_changes_refused(rng, asked):
    for q, answer in zip(asked, ask(asked)):
        assert answer["code"] == "", (q, answer)
    changed = [changed_byte(rng, q) for q in asked]
    for before, q, answer in zip(asked, changed, ask(changed)):
        assert answer["code"] != "", (before, q)


def header_cases(seed, count, service, auth_class):
    rng = random.Random(seed)
    for _ in range(count):
        body = rng.randbytes(20) if service != "s3" and rng.random() < 0.7 else b""
        request = random_request(rng, service, body)
        if rng.random() < 0.1:
            request.headers["Date"] = "now"  # then signed instead of x-amz-date
        credentials = rng.choice([LONG_LIVED, TEMPORARY])
        unsigned = question("sign", request, credentials, service)
        auth_class(credentials, service, "eu-central-1").add_auth(request)
        yield rng, request, credentials, unsigned, hashlib.sha256(body).hexdigest()


@pytest.mark.parametrize("service, auth_class, count", [
    ("s3", botocore.auth.S3SigV4Auth, 1500), ("sagemaker", botocore.auth.SigV4Auth, 800)])
def test_requests_signed_by_botocore_are_accepted(service, auth_class, count):
    asked = []
    for rng, request, credentials, _, body_sha256 in header_cases(1, count, service, auth_class):
        asked.append(question("verify", request, credentials, service, body_sha256=body_sha256,
                              signed_headers=signed_headers_of(request)))
    assert_accepted_and_changes_refused(random.Random(11), asked)


@pytest.mark.parametrize("service, auth_class, count", [
    ("s3", botocore.auth.S3SigV4Auth, 1500), ("sagemaker", botocore.auth.SigV4Auth, 800)])
def test_our_signature_equals_botocores(service, auth_class, count):
    asked, wanted = [], []
    for _, request, _, unsigned, body_sha256 in header_cases(2, count, service, auth_class):
        if "Date" in request.headers:
            continue  # ours are always dated by x-amz-date
        unsigned["payload"] = request.headers.get("X-Amz-Content-SHA256", body_sha256)
        asked.append(unsigned)
        wanted.append(request.headers["Authorization"])
    for q, answer, authorization in zip(asked, ask(asked), wanted):
        assert dict(answer["headers"])["authorization"] == authorization, q
    assert len(asked) > 0.8 * count


def presigned_cases(seed, count, service, auth_class):
    rng = random.Random(seed)
    for _ in range(count):
        request = random_request(rng, service)
        request.context["payload_signing_enabled"] = True
        credentials = rng.choice([LONG_LIVED, TEMPORARY])
        expires = rng.choice([1, 60, 3600, 604800])
        unsigned = question("presign", request, credentials, service, expires=expires)
        auth_class(credentials, service, "eu-central-1", expires=expires).add_auth(request)
        yield rng, request, credentials, unsigned


@pytest.mark.parametrize("service, auth_class, count", [
    ("s3", botocore.auth.S3SigV4QueryAuth, 1500), ("sts", botocore.auth.SigV4QueryAuth, 500)])
def test_urls_presigned_by_botocore_are_accepted(service, auth_class, count):
    asked = [question("verify", request, credentials, service,
                      signed_headers=signed_headers_of(request))
             for _, request, credentials, _ in presigned_cases(3, count, service, auth_class)]
    assert_accepted_and_changes_refused(random.Random(13), asked)


@pytest.mark.parametrize("service, auth_class, count", [
    ("s3", botocore.auth.S3SigV4QueryAuth, 1500), ("sts", botocore.auth.SigV4QueryAuth, 500)])
def test_our_presigned_url_equals_botocores(service, auth_class, count):
    asked, wanted = [], []
    for _, request, _, unsigned in presigned_cases(4, count, service, auth_class):
        query = urllib.parse.urlsplit(request.url).query
        # botocore writes the request's own parameters anew before it signs.
        unsigned["query"] = query[:query.index("X-Amz-Algorithm")].rstrip("&")
        asked.append(unsigned)
        wanted.append(query)
    for q, answer, query in zip(asked, ask(asked), wanted):
        assert answer["query"] == query, q


def test_requests_signed_by_the_crt_are_accepted():
    rng = random.Random(5)
    asked = []
    for _ in range(600):
        request = random_request(rng, "s3")
        if ":/" in request.url.split("://", 1)[1]:
            continue  # the CRT takes what stands before it for a scheme, wherever it is
        credentials = rng.choice([LONG_LIVED, TEMPORARY])
        botocore.crt.auth.CrtS3SigV4Auth(credentials, "s3", "eu-central-1").add_auth(request)
        asked.append(question("verify", request, credentials, "s3",
                              signed_headers=signed_headers_of(request)))
        asked[-1]["now"] = date_of(request)
    assert len(asked) > 400
    assert_accepted_and_changes_refused(rng, asked)


class Sent(Exception):
    """Carries the request that a client was about to send."""


def sent_by_boto3(scheme, call, **config):
    client = boto3.client(
        "s3", endpoint_url=f"{scheme}://127.0.0.1:9", region_name="eu-central-1",
        aws_access_key_id=LONG_LIVED.access_key, aws_secret_access_key=LONG_LIVED.secret_key,
        config=botocore.config.Config(s3={"addressing_style": "path"},
                                      retries={"max_attempts": 1}, **config))

    def stop(request, **_):
        raise Sent(request)

    client.meta.events.register("before-send.s3", stop)
    with pytest.raises(Sent) as caught:
        call(client)
    return caught.value.args[0]


def text_headers(request):
    return [(name, value.decode() if isinstance(value, bytes) else value)
            for name, value in request.headers.items()]


def sent_question(op, request, **more):
    asked = question(op, request, LONG_LIVED, "s3", **more)
    asked["headers"] = [(n, v) for n, v in asked["headers"] if n == "Host"] + text_headers(request)
    asked["now"] = date_of(request)
    return asked


@pytest.mark.parametrize("algorithm", [None, "CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256"])
@pytest.mark.parametrize("size", [0, 1, 4000, 3 << 20])
def test_bodies_streamed_by_boto3_are_decoded(algorithm, size):
    data = random.Random(size).randbytes(size)
    arguments = {"ChecksumAlgorithm": algorithm} if algorithm else {}
    request = sent_by_boto3("https", lambda s3: s3.put_object(
        Bucket="bucket", Key="ä +/k", Body=io.BytesIO(data), **arguments))
    assert request.headers["x-amz-content-sha256"] in (
        b"STREAMING-UNSIGNED-PAYLOAD-TRAILER", "STREAMING-UNSIGNED-PAYLOAD-TRAILER")
    body = request.body.read()
    right, broken = bytearray(body), bytearray(body)
    # The last digit of the checksum that counts: '=' pads it, and the one before may hold spare bits.
    broken[broken.rindex(b":") + 1] ^= 1
    answers = ask([sent_question("decode", request, body=bytes(b).hex(), piece_bytes=piece)
                   for b in (right, broken) for piece in (1 << 16, 1009)])
    assert [a["code"] for a in answers[:2]] == ["", ""], answers
    assert all(bytes.fromhex(a["bytes"]) == data for a in answers[:2])
    assert {a["code"] for a in answers[2:]} <= {"BadDigest", "InvalidRequest"}, answers[2:]


CALLS = {
    "list": lambda s3: s3.list_objects_v2(Bucket="b", Prefix="a b+c/ü", Delimiter="/", MaxKeys=3),
    "put over http": lambda s3: s3.put_object(Bucket="b", Key="k", Body=b"body",
                                              Metadata={"note": "two  spaces"}),
    "ranged get": lambda s3: s3.get_object(Bucket="b", Key="//..//k=&?#", Range="bytes=0-9"),
    "multipart": lambda s3: s3.create_multipart_upload(Bucket="b", Key="k%2Fk"),
    "copy": lambda s3: s3.copy_object(Bucket="b", Key="k", CopySource={"Bucket": "b", "Key": "ü +"}),
    "delete many": lambda s3: s3.delete_objects(Bucket="b", Delete={"Objects": [{"Key": "a"}]}),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_of_boto3_are_accepted(name):
    request = sent_by_boto3("http", CALLS[name])
    answer, = ask([sent_question("verify", request)])
    assert answer["code"] == "", answer


@pytest.mark.parametrize("algorithm", ["CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256", "SHA512"])
def test_checksums_equal_botocores(algorithm):
    rng = random.Random(6)
    pieces = [rng.randbytes(size) for size in [0, 1, 7, 8, 63, 64, 255, 256, 257, 1000, 65537]]
    answers = ask([{"op": "checksum", "algorithm": algorithm, "bytes": p.hex()} for p in pieces])
    for piece, answer in zip(pieces, answers):
        theirs = botocore.httpchecksum._CHECKSUM_CLS[algorithm.lower()]()
        theirs.update(piece)
        assert answer["base64"] == theirs.b64digest()
        assert base64.b64decode(answer["base64"]) == theirs.digest()
