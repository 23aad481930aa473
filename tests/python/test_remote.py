"""Shards in a bucket, served by `yard s3 serve`; a store that is away; Ctrl-C."""

import os
import signal
import socket
import sys
import threading
import time

import pytest
import trainyard
from shard_files import ROOT, WAIT_SECONDS, YARD, start_script, write_shards
from trainyard.data import Image, ShardLoader, expand, samples

sys.path.append(str(ROOT / "tests/clients"))
pytestmark = pytest.mark.skipif(not YARD.exists(), reason=f"{YARD} is not built")
TINY = Image(size=8)


@pytest.fixture(scope="module", name="bucket")
def fixture_bucket(tmp_path_factory):
    from served import served

    folder = tmp_path_factory.mktemp("store")
    (folder / "data/x").mkdir(parents=True)
    write_shards(folder / "data/x", 60, 20)
    (folder / "data/x/note.txt").write_text("no shard")
    with served(folder) as gateway:
        yield gateway


@pytest.fixture(name="s3")
def fixture_s3(bucket, monkeypatch):
    for name in [n for n in os.environ if n.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in bucket.environment().items():
        if name.startswith("AWS_"):
            monkeypatch.setenv(name, value)
    return bucket


def test_urls_of_a_bucket(s3):
    shards = [f"s3://data/x/s-{i:06d}.tar" for i in range(3)]
    for urls in ("s3://data/x/", "s3://data", "s3://data/x/s-*.tar", "s3://data/x/s-{000000..000002}.tar", shards):
        assert expand(urls) == shards
    for url in ("s3://data/y/", "s3://data/x/t*.tar"):
        with pytest.raises(trainyard.NotFound, match="no shard"):
            expand(url)


def test_a_bucket_gives_what_the_folder_gives(s3):
    local = list(ShardLoader(s3.folder / "data/x", batch_size=6, image=TINY, output="numpy"))
    remote = list(ShardLoader("s3://data/x/", batch_size=6, image=TINY, output="numpy", threads=3))
    assert len(remote) == 10
    for a, b in zip(local, remote):
        assert a.captions == b.captions and (a.images == b.images).all()
        assert [f"{s3.folder}/{key[5:]}" for key in b["keys"]] == a["keys"]
    loader = ShardLoader("s3://data/x/", batch_size=6, image=TINY)
    loader.load_state_dict(ShardLoader(s3.folder / "data/x", batch_size=6, image=TINY).state_dict(after=local[6]))
    assert [b.captions for b in loader] == [b.captions for b in local[7:]]


def test_samples_of_a_bucket_and_a_folder_in_one_list(s3, tmp_path):
    write_shards(tmp_path, 20, 20, prefix="local")
    urls = ["s3://data/x/", tmp_path]
    got = {(s["__url__"], s["__key__"]) for s in samples(urls)}
    assert len(got) == 80 and {u for u, _ in got} == set(expand(urls))
    mix = ShardLoader({"s3://data/x/": 1, tmp_path: 1}, batch_size=8, image=TINY)
    keys = [key for batch in mix for key in batch["keys"]]
    assert all(key.startswith(("s3://data/x/", str(tmp_path))) for key in keys)
    assert abs(sum(key.startswith("s3:") for key in keys) - len(keys) / 2) < len(keys) / 4


def test_a_store_that_is_away_is_waited_for(s3):
    expected = [b.captions for b in ShardLoader("s3://data/x/", batch_size=6, image=TINY)]
    loader = ShardLoader("s3://data/x/", batch_size=6, image=TINY, read_ahead_bytes=1, prefetch=1)
    len(loader)
    s3.process.send_signal(signal.SIGSTOP)
    timer = threading.Timer(0.5, lambda: s3.process.send_signal(signal.SIGCONT))
    timer.start()
    try:
        assert [b.captions for b in loader] == expected
    finally:
        timer.join()


@pytest.mark.parametrize("fault", [500, 503, ("cut", 0), ("cut", 700)])
def test_a_fault_in_any_request_never_becomes_a_sample(s3, monkeypatch, fault):
    from mounting import FaultProxy

    expected = list(ShardLoader(s3.folder / "data/x", batch_size=6, image=TINY, output="numpy"))
    numbers = []

    def fate(number, method, _, __):
        if method != "GET":
            return None
        numbers.append(number)
        return fault if len(numbers) % 3 == 1 else None

    with FaultProxy(s3.url, fate) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.url)
        got = list(ShardLoader("s3://data/x/", batch_size=6, image=TINY, output="numpy"))
    assert [b.captions for b in got] == [b.captions for b in expected]
    assert all((a.images == b.images).all() for a, b in zip(got, expected))
    assert len(numbers) >= 6


STOPPED = """
    import sys, time, trainyard
    loader = trainyard.data.ShardLoader("s3://data/x/", batch_size=6, read_ahead_bytes=1, prefetch=1,
                                        image=trainyard.data.Image(size=8))
    batches = iter(loader)
    given = [next(batches)["batch"]]
    try:
        print("stop the store", flush=True)
        while True:
            given.append(next(batches)["batch"])
    except (KeyboardInterrupt, StopIteration):  # the latter: it was through before
        print("interrupted", flush=True)
    for batch in batches:
        given.append(batch["batch"])
    print(given == list(range(10)), flush=True)
"""


def test_ctrl_c_is_answered_while_a_batch_is_waited_for_and_loses_nothing(s3):
    process = start_script(STOPPED)
    assert process.stdout.readline() == "stop the store\n"
    s3.process.send_signal(signal.SIGSTOP)
    try:
        # It may have been through before the store was stopped; then there is nothing to see.
        process.send_signal(signal.SIGINT)
        answer = process.stdout.readline()
    finally:
        s3.process.send_signal(signal.SIGCONT)
    out, err = process.communicate(timeout=WAIT_SECONDS)
    assert answer == "interrupted\n", err
    assert out == "True\n", err


OPENING = """
    import sys, trainyard
    print("opening", flush=True)
    next(iter(trainyard.data.ShardLoader("s3://data/a.tar", batch_size=1)))
"""


def test_ctrl_c_is_answered_while_shards_are_opened():
    with socket.create_server(("127.0.0.1", 0)) as deaf:  # takes connections, never answers
        process = start_script(OPENING, AWS_ENDPOINT_URL=f"http://127.0.0.1:{deaf.getsockname()[1]}",
                               AWS_ACCESS_KEY_ID="k", AWS_SECRET_ACCESS_KEY="s")
        assert process.stdout.readline() == "opening\n"
        connection, _ = deaf.accept()
        begin = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=WAIT_SECONDS)
        print(f"answered within {time.monotonic() - begin:.3f} s, with the end of Python")
        connection.close()
    assert process.returncode == -signal.SIGINT and "KeyboardInterrupt" in err


def test_a_store_that_nobody_serves_is_unavailable(s3, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3", raising=False)
    with pytest.raises(ConnectionError) as caught:
        next(iter(ShardLoader("s3://data/x/s-000000.tar", batch_size=1, store_patience_s=0)))
    assert isinstance(caught.value, trainyard.Unavailable) and caught.value.code == "unavailable"


def test_keys_that_are_missing_or_refused_are_told(s3, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(trainyard.InvalidArgument, match="(?i)signature"):
        expand("s3://data/x/")
    with pytest.raises(trainyard.NotFound):
        monkeypatch.undo()
        for name in [n for n in os.environ if n.startswith("AWS_")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        monkeypatch.setenv("HOME", "/nonexistent")
        expand("s3://data/x/")
