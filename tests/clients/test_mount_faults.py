"""`yard mount` when the store fails, objects change, and processes are killed."""

import errno
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time

import pytest

from mounting import FaultProxy, is_mounted, mounted, why_not
from s3_servers import wait_until
from served import WAIT_SECONDS, served

MIB = 1 << 20
NO_MOUNT = why_not()
pytestmark = pytest.mark.skipif(NO_MOUNT is not None, reason=f"NOT TESTED: {NO_MOUNT}")

SIZE = 24 * MIB + 11
READ_ALL = "import sys; sys.stdout.write(str(len(open(sys.argv[1], 'rb').read())))"


def content_of(seed, size=SIZE):
    return random.Random(seed).randbytes(size)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    (folder / "bucket" / "few").mkdir(parents=True)
    (folder / "bucket" / "large").write_bytes(content_of(1))
    for number in range(20):
        (folder / "bucket" / "few" / str(number)).write_bytes(content_of(number, 3 * MIB))
    with served(folder) as gateway:
        gateway.bucket = folder / "bucket"
        yield gateway


@pytest.fixture()
def proxy(store):
    with FaultProxy(store.url) as running:
        yield running


@pytest.fixture()
def mount(store, proxy, tmp_path):
    environment = {**store.environment(), "AWS_ENDPOINT_URL_S3": proxy.url}
    with mounted(tmp_path / "at", "s3://bucket", environment, "--wait", "30s") as running:
        yield running


def read_whole(path):
    return path.read_bytes()


@pytest.mark.parametrize("fault", [500, 503, ("cut", 0), ("cut", 1000), ("cut", 100_000)])
def test_a_fault_in_any_request_for_bytes_never_becomes_content(proxy, mount, fault):
    numbers = []

    def fate(_, method, __, span):
        if method != "GET" or not span:
            return None
        numbers.append(span)
        return fault if len(numbers) % 3 == 1 else None

    proxy.fate = fate
    assert read_whole(mount.path / "large") == content_of(1)
    assert len(numbers) >= 3


def test_an_object_replaced_while_it_is_read_is_an_error_and_a_log_line_never_a_mixture(
        store, mount):
    store.client().put_object(Bucket="bucket", Key="changing", Body=content_of(1))
    with open(mount.path / "changing", "rb", buffering=0) as file:
        assert file.read(4096) == content_of(1)[:4096]
        store.client().put_object(Bucket="bucket", Key="changing", Body=content_of(2))
        with pytest.raises(OSError) as failed:
            for offset in range(12 * MIB, SIZE, MIB):
                got = os.pread(file.fileno(), 4096, offset)
                assert got == content_of(1)[offset:offset + 4096]
        assert failed.value.errno == errno.EIO
        # Who opens it now gets the new one, whole, while the old one is still open.
        assert read_whole(mount.path / "changing") == content_of(2)
    assert "changing" in mount.log() and "EIO" in mount.log()


def test_an_object_removed_while_it_is_read_is_an_error(store, mount):
    store.client().put_object(Bucket="bucket", Key="going", Body=content_of(1))
    with open(mount.path / "going", "rb", buffering=0) as file:
        assert file.read(4096) == content_of(1)[:4096]
        store.client().delete_object(Bucket="bucket", Key="going")
        with pytest.raises(OSError) as failed:
            os.pread(file.fileno(), 4096, 12 * MIB)
        assert failed.value.errno == errno.EIO
    wait_until(lambda: not (mount.path / "going").exists(), "still there")


def test_readers_wait_for_a_store_that_is_away_and_lose_nothing(proxy, mount):
    started = threading.Barrier(9)
    right = []

    def read(number):
        with open(mount.path / "few" / str(number), "rb", buffering=0) as file:
            begin = file.read(1000)
            started.wait(WAIT_SECONDS)
            started.wait(WAIT_SECONDS)
            rest = b""
            while piece := file.read(MIB):
                rest += piece
            right.append(begin + rest == content_of(number, 3 * MIB))

    threads = [threading.Thread(target=read, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    started.wait(WAIT_SECONDS)
    proxy.is_away = True
    started.wait(WAIT_SECONDS)
    # Also who opens a file that nobody has asked for before.
    opener = threading.Thread(target=lambda: right.append(
        read_whole(mount.path / "large") == content_of(1)))
    opener.start()
    wait_until(lambda: "cannot be reached" in mount.log(), "nobody noticed")
    assert not right
    proxy.is_away = False
    for thread in threads:
        thread.join(WAIT_SECONDS)
    opener.join(WAIT_SECONDS)
    assert right == [True] * 9


def test_a_store_that_stays_away_is_an_error_after_the_wait_and_not_for_ever(
        store, proxy, tmp_path):
    environment = {**store.environment(), "AWS_ENDPOINT_URL_S3": proxy.url}
    with mounted(tmp_path / "at", "s3://bucket", environment, "--wait", "500ms") as mount:
        with open(mount.path / "large", "rb", buffering=0) as file:
            proxy.fate = lambda *_: 503
            with pytest.raises(OSError) as failed:
                file.read(4096)
            assert failed.value.errno == errno.ETIMEDOUT
            proxy.fate = lambda *_: None
            assert file.read(4096) == content_of(1)[:4096]


def test_who_waits_for_the_store_can_be_killed(proxy, mount):
    proxy.fate = lambda _, method, __, span: ("hold",) if span or method == "GET" else None
    commands = [[sys.executable, "-c", READ_ALL, mount.path / "large"], ["ls", mount.path / "few"]]
    for number, command in enumerate(commands):
        with subprocess.Popen(command, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL) as reader:
            wait_until(lambda: proxy.held > number, "nothing was asked for")
            reader.kill()
            assert reader.wait(WAIT_SECONDS) == -signal.SIGKILL
    proxy.fate = lambda *_: None
    proxy.release()
    assert read_whole(mount.path / "few" / "1") == content_of(1, 3 * MIB)


def test_after_a_kill_at_any_moment_it_is_mounted_again(store, tmp_path):
    at = tmp_path / "at"
    chance = random.Random(7)
    for _ in range(4):
        with mounted(at, "s3://bucket", store.environment(), "--cache", tmp_path / "cache") as mount:
            failures = []

            def read(path=mount.path, failures=failures):
                try:
                    while True:
                        for number in range(20):
                            if (path / "few" / str(number)).read_bytes() != content_of(number, 3 * MIB):
                                failures.append(number)
                except OSError:
                    pass

            threads = [threading.Thread(target=read) for _ in range(3)]
            for thread in threads:
                thread.start()
            time.sleep(chance.random() * 0.3)
            mount.process.kill()
            for thread in threads:
                thread.join(WAIT_SECONDS)
            assert not failures
            assert is_mounted(at)  # dead: the next one takes it off
            with mounted(at, "s3://bucket", store.environment(), "--cache",
                         tmp_path / "cache") as second:
                assert "dead" in second.log()
                assert read_whole(at / "few" / "3") == content_of(3, 3 * MIB)
                assert second.stop() == 0
            assert not is_mounted(at)


def test_three_hundred_open_files_stay_within_the_memory(store, tmp_path):
    folder = tmp_path / "own"
    folder.mkdir()
    step = 4096
    every = content_of(1, MIB + 300 * step)

    def expected(number, offset):
        return every[number * step + offset:][:MIB // 4]

    for number in range(300):
        (folder / str(number)).write_bytes(every[number * step:][:MIB])
    with mounted(tmp_path / "at", folder, {**os.environ}, "--memory", "48MiB") as mount:
        files = [open(mount.path / str(number), "rb", buffering=0) for number in range(300)]
        try:
            for offset in range(0, MIB, MIB // 4):
                for number, file in enumerate(files):
                    got = b""
                    while len(got) < MIB // 4:
                        got += file.read(MIB // 4 - len(got))
                    assert got == expected(number, offset)
        finally:
            for file in files:
                file.close()
        status = pathlib.Path(f"/proc/{mount.process.pid}/status").read_text()
        peak_kib = int(next(line for line in status.splitlines()
                            if line.startswith("VmHWM")).split()[1])
        assert peak_kib < (48 + 64) << 10
        assert mount.fresh_stats()["mount_memory_bytes"] == 0
