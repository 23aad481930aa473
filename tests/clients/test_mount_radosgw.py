"""`yard mount` over a server of another make: Ceph's radosgw."""

import errno
import hashlib
import os
import random

import pytest

from mounting import mounted, why_not
from radosgw import radosgw
from s3_servers import wait_until

MIB = 1 << 20
NO_MOUNT = why_not()
pytestmark = pytest.mark.skipif(NO_MOUNT is not None, reason=f"NOT TESTED: {NO_MOUNT}")


def content_of(seed, size):
    return random.Random(seed).randbytes(size)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with radosgw(tmp_path_factory.mktemp("radosgw")) as running:
        client = running.client()
        for number in range(1200):  # more than a page of a listing
            client.put_object(Bucket="bucket", Key=f"many/{number:05d}", Body=b"%d" % number)
        client.put_object(Bucket="bucket", Key="deep/er/file with ünicode", Body=b"text")
        client.put_object(Bucket="bucket", Key="empty", Body=b"")
        client.put_object(Bucket="bucket", Key="changing/a", Body=content_of(10, 24 * MIB))
        upload = client.create_multipart_upload(Bucket="bucket", Key="large")["UploadId"]
        parts = [client.upload_part(Bucket="bucket", Key="large", UploadId=upload, PartNumber=i + 1,
                                    Body=content_of(i, 5 * MIB))["ETag"] for i in range(4)]
        client.complete_multipart_upload(
            Bucket="bucket", Key="large", UploadId=upload,
            MultipartUpload={"Parts": [{"PartNumber": i + 1, "ETag": tag} for i, tag in enumerate(parts)]})
        yield running


@pytest.fixture(scope="module")
def mount(server, tmp_path_factory):
    folder = tmp_path_factory.mktemp("at") / "at"
    with mounted(folder, "s3://bucket", server.environment()) as running:
        yield running


def test_the_tree_is_that_of_the_keys(mount):
    assert sorted(os.listdir(mount.path)) == ["changing", "deep", "empty", "large", "many"]
    names = os.listdir(mount.path / "many")
    assert len(names) == 1200 and names == sorted(names)
    assert (mount.path / "many" / "00777").read_bytes() == b"777"
    assert (mount.path / "deep" / "er" / "file with ünicode").read_text() == "text"
    assert (mount.path / "empty").read_bytes() == b""
    assert not (mount.path / "many" / "no such").exists()


def test_an_object_of_parts_is_read_whole_and_in_places(mount):
    whole = b"".join(content_of(i, 5 * MIB) for i in range(4))
    path = mount.path / "large"
    assert path.stat().st_size == len(whole)
    with open(path, "rb", buffering=0) as file:
        draw = random.Random(1)
        for _ in range(50):
            offset = draw.randrange(len(whole))
            assert os.pread(file.fileno(), 70_000, offset) == whole[offset:offset + 70_000]
    assert hashlib.sha256(path.read_bytes()).digest() == hashlib.sha256(whole).digest()


def test_a_replaced_object_is_an_error_never_a_mixture(server, mount):
    first, second = content_of(10, 24 * MIB), content_of(11, 24 * MIB)
    with open(mount.path / "changing" / "a", "rb", buffering=0) as file:
        assert file.read(4096) == first[:4096]
        server.client().put_object(Bucket="bucket", Key="changing/a", Body=second)
        with pytest.raises(OSError) as failed:
            for offset in range(12 * MIB, 24 * MIB, MIB):
                assert os.pread(file.fileno(), 4096, offset) == first[offset:offset + 4096]
        assert failed.value.errno == errno.EIO
    wait_until(lambda: (mount.path / "changing" / "a").read_bytes() == second, "still the old one")


def test_hosts_share_the_objects(server, tmp_path):
    seen = []
    for share in range(3):
        with mounted(tmp_path / str(share), "s3://bucket/many", server.environment(), "--shard",
                     f"{share}/3") as part:
            seen += os.listdir(part.path)
            assert part.stop() == 0
    assert len(seen) == 1200 and len(set(seen)) == 1200
