"""Errors are Python exceptions by code, and name what they are about."""

import pickle
import struct
import threading
import zlib

import pytest
import trainyard
from shard_files import picture, write_shard
from trainyard import errors
from trainyard.data import Image, ShardLoader, samples


def read(folder, **options):
    options.setdefault("batch_size", 1)
    return list(ShardLoader(folder, image=Image(size=8), **options))


def bomb(width, height):
    """A PNG whose header promises more than its bytes hold."""
    def chunk(name, content):
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def one_sample(folder, **members):
    write_shard(folder / "a.tar", [("key", members)])
    return folder


@pytest.mark.parametrize("code,builtin", [
    ("not_found", FileNotFoundError), ("invalid_argument", ValueError), ("corrupt", ValueError),
    ("unavailable", ConnectionError), ("deadline_exceeded", TimeoutError), ("cancelled", trainyard.Error),
    ("exhausted", trainyard.Error), ("internal", RuntimeError),
])
def test_every_code_has_its_class(code, builtin):
    error = errors.of_code(code, "s3://b/k: 503")
    assert isinstance(error, builtin) and isinstance(error, trainyard.Error) and isinstance(error, Exception)
    assert error.code == code and str(error) == "s3://b/k: 503"
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and str(again) == str(error)


@pytest.mark.parametrize("argument, value", [
    ("batch_size", 0), ("batch_size", 2.5), ("threads", 0), ("threads", 257), ("prefetch", 0), ("seed", -1),
    ("read_ahead_bytes", -1), ("cache_bytes", "1GB"), ("index_bytes", None), ("store_patience_s", -5),
    ("image", {"size": 32}),
])
def test_a_wrong_argument_is_told_by_its_name(shards, argument, value):
    with pytest.raises(trainyard.InvalidArgument, match=argument):
        ShardLoader(shards, **{"batch_size": 8, argument: value})


def test_a_missing_shard_is_file_not_found(tmp_path):
    with pytest.raises(FileNotFoundError, match="none.tar"):
        read(tmp_path / "none.tar")
    with pytest.raises(trainyard.NotFound, match="/nowhere"):
        read("/nowhere/at/all.tar")


def test_a_damaged_picture_names_shard_offset_and_member(tmp_path):
    one_sample(tmp_path, jpg=picture(1)[:300], txt=b"x")
    loader = ShardLoader(tmp_path, batch_size=1, image=Image(size=8))
    batches = iter(loader)
    for _ in range(2):  # it stays
        with pytest.raises(trainyard.Corrupt, match=r"a\.tar.*512.*key") as caught:
            next(batches)
        assert isinstance(caught.value, ValueError)


def test_a_missing_member_is_corrupt_and_says_what_there_is(tmp_path):
    one_sample(tmp_path, jpg=picture(1), json=b"{}")
    with pytest.raises(trainyard.Corrupt, match="no caption.*jpg, json"):
        read(tmp_path)
    assert len(read(tmp_path, captions=None)) == 1


def test_a_truncated_shard_is_corrupt(tmp_path):
    one_sample(tmp_path, jpg=picture(1), txt=b"x")
    whole = (tmp_path / "a.tar").read_bytes()
    (tmp_path / "a.tar").write_bytes(whole[:700])
    for reading in (lambda: read(tmp_path), lambda: list(samples(tmp_path))):
        with pytest.raises(trainyard.Corrupt, match="a.tar"):
            reading()


def test_a_decompression_bomb_is_exhausted(tmp_path):
    one_sample(tmp_path, png=bomb(100_000, 100_000), txt=b"x")
    with pytest.raises(trainyard.Exhausted, match="key"):
        read(tmp_path)


def test_what_is_no_tar_is_an_invalid_argument(tmp_path):
    (tmp_path / "a.tar").write_bytes(b"<html>" * 1000)
    with pytest.raises(trainyard.InvalidArgument, match="a.tar"):
        read(tmp_path)


@pytest.mark.parametrize("options,words", [
    ({"batch_size": 2}, "larger than the data set"),
    ({"batch_size": None}, "one of batch_size and global_batch_size"),
    ({"batch_size": 1, "global_batch_size": 1}, "one of batch_size"),
    ({"batch_size": None, "global_batch_size": 3, "rank": 0, "world_size": 2}, "evenly"),
    ({"rank": 1}, "go together"),
    ({"rank": 2, "world_size": 2}, "rank 2"),
    ({"mode": "globe"}, "global, independent"),
    ({"ends": "stop"}, "drop, pad, wrap"),
    ({"on_bad": "warn"}, "fail, skip"),
    ({"quarantine": "x"}, "on_bad"),
    ({"seed": -1}, "seed"),
    ({"threads": 1000}, "1000"),
    ({"mode": "independent", "rank": 0, "world_size": 2}, "cannot be dealt"),
])
def test_impossible_options_are_refused(tmp_path, options, words):
    one_sample(tmp_path, png=picture(1, kind="png"), txt=b"x")
    with pytest.raises(trainyard.InvalidArgument, match=words):
        read(tmp_path, **options)


@pytest.mark.parametrize("options,words", [
    ({"crop": "middle"}, "center, random, resized"), ({"dtype": "float16"}, "uint8, float32, bfloat16"),
    ({"layout": "CHW"}, "NCHW, NHWC"), ({"filter": "lanczos"}, "bilinear, bicubic"),
    ({"mean": (0.5,)}, "mean"), ({"area": (0.5, 2)}, "area"), ({"aspect": (2, 1)}, "aspect"),
])
def test_impossible_images_are_refused(options, words):
    with pytest.raises(trainyard.InvalidArgument, match=words):
        Image(**options)


def test_a_loader_closed_by_another_thread_is_cancelled(tmp_path):
    one_sample(tmp_path, png=picture(1, (2000, 2000), "png"), txt=b"x")
    loader = ShardLoader(tmp_path, batch_size=1, repeat=True, image=Image(size=4096, filter="bicubic"))
    caught = []

    def consume():
        try:
            for _ in loader:
                pass
        except trainyard.Error as e:
            caught.append(e)

    next(iter(loader))
    thread = threading.Thread(target=consume)
    native = loader._loader
    thread.start()
    native.close()
    thread.join(60)
    assert not thread.is_alive() and type(caught[0]) is trainyard.Cancelled
    loader.close()
    assert len(next(iter(loader)).captions) == 1  # a new iteration opens it again


def test_the_log_has_levels():
    with pytest.raises(trainyard.InvalidArgument, match="debug, info"):
        trainyard.set_log_level("loud")
    trainyard.set_log_level("info")
    trainyard.set_log_level("warning")
