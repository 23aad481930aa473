"""5 GiB to the gateway in parts and back: only when asked for, as it takes minutes and 16 GiB of disk.

    YARD_TEST_LARGE=1 .venv/bin/python -m pytest -s tests/clients/test_s3_large.py
"""

import os
import pathlib
import random
import subprocess
import sys
import time

import pytest

from served import BIN, served

MIB = 1 << 20
# One byte more than a single request may carry: it goes in parts or not at all.
SIZE_BYTES = (5 << 30) + 1
AWS = pathlib.Path(sys.executable).with_name("aws")

pytestmark = pytest.mark.skipif(
    os.environ.get("YARD_TEST_LARGE") != "1",
    reason="NOT TESTED: 5 GiB take minutes and 16 GiB of disk; set YARD_TEST_LARGE=1 to test them")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    (folder / "bucket").mkdir()
    with served(folder) as running:
        yield running


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Sparse; what is in it lies across the borders of parts, and at both ends."""
    path = tmp_path_factory.mktemp("source") / "source"
    generator = random.Random(5)
    with path.open("wb") as file:
        file.truncate(SIZE_BYTES)
        for at in (0, *(gib * 1024 * MIB - MIB // 2 for gib in range(1, 5)), SIZE_BYTES - MIB):
            file.seek(at)
            file.write(generator.randbytes(MIB))
    yield path
    path.unlink()


def equal(one, other):
    return subprocess.run(["cmp", one, other]).returncode == 0


COPIES = {"aws": [AWS, "s3", "cp", "--only-show-errors"], "yard": [BIN / "yard", "cp", "--quiet"]}


@pytest.mark.parametrize("name", COPIES)
def test_five_gibibytes_go_up_in_parts_and_come_back(gateway, s3, source, tmp_path, name):
    def copy(what, *places):
        begun = time.monotonic()
        subprocess.run([*COPIES[name], *places], env=gateway.environment(), check=True)
        seconds = time.monotonic() - begun
        print(f"\n{name} {what}: {seconds:.1f} s, {SIZE_BYTES / MIB / seconds:.0f} MiB/s", flush=True)

    copy("upload", source, f"s3://bucket/{name}")
    head = s3.head_object(Bucket="bucket", Key=name)
    assert head["ContentLength"] == SIZE_BYTES
    assert int(head["ETag"].strip('"').split("-")[1]) > 1
    copy("download", f"s3://bucket/{name}", tmp_path / "back")
    assert equal(source, tmp_path / "back")
    (tmp_path / "back").unlink()
    s3.delete_object(Bucket="bucket", Key=name)
    assert s3.list_multipart_uploads(Bucket="bucket").get("Uploads", []) == []
