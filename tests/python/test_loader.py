"""ShardLoader: what is in a batch, in which order, and whose memory it is."""

import gc
import json
import os
import shutil

import numpy
import pytest
import torch
import trainyard
from PIL import Image as Pillow
from shard_files import picture, pixels, run_script, write_shard, write_shards
from trainyard.data import Image, ShardLoader


def ids_of(batches):
    return [i for batch in batches for i in batch["sample_ids"].tolist()]


def test_a_batch_has_pictures_captions_and_where_they_are_from(shards):
    loader = ShardLoader(f"{shards}/s-{{000000..000003}}.tar", batch_size=8, image=Image(size=32), output="numpy")
    assert len(loader) == 12 and loader.sample_count == 100
    batches = list(loader)
    assert len(batches) == 12 and len(set(ids_of(batches))) == 96
    batch = batches[3]
    assert batch["images"].shape == (8, 3, 32, 32) and batch.images.dtype == numpy.float32
    assert batch["mask"].all() and batch["mask"].dtype == numpy.bool_
    assert (batch["epoch"], batch["batch"], batch["first_sample_number"]) == (0, 3, 24)
    for i, sample in enumerate(batch.sample_ids):
        assert batch.captions[i] == f"caption {sample}"
        assert batch.keys()  # a dict's own, not hidden by the entry of that name
        assert batch["keys"][i] == f"{shards}/s-{sample // 25:06d}.tar/{sample:06d}"


def test_pixels_are_pillows(shards):
    loader = ShardLoader(shards, batch_size=1, shuffle=False, output="numpy",
                         image=Image(size=32, dtype="uint8", layout="NHWC", filter="bicubic", dct_scaling=False))
    first = next(iter(loader))
    with Pillow.open(__import__("io").BytesIO(picture(0))) as whole:
        cut = whole.resize((40, 32), Pillow.BICUBIC).crop((4, 0, 36, 32))
    difference = numpy.abs(first.images[0].astype(int) - numpy.asarray(cut).astype(int))
    assert first.captions == ["caption 0"]
    assert difference.max() <= 2 and difference.mean() < 0.3


@pytest.mark.parametrize("dtype", ["uint8", "float32", "bfloat16"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_values_and_layouts(shards, dtype, layout):
    def images(**options):
        loader = ShardLoader(shards, batch_size=4, shuffle=False, output="torch", image=Image(size=16, **options))
        return next(iter(loader)).images

    levels = images(dtype="uint8").float()
    got = images(dtype=dtype, layout=layout, mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.4))
    assert got.dtype == getattr(torch, dtype)
    if layout == "NHWC":
        got = got.permute(0, 3, 1, 2)
        assert got.is_contiguous(memory_format=torch.channels_last)
    if dtype != "uint8":
        mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in ((0.4, 0.5, 0.6), (0.2, 0.3, 0.4)))
        got = (got.float() * std + mean) * 255
    assert (got.float() - levels).abs().max() <= (2.0 if dtype == "bfloat16" else 0.51)


def test_arrays_are_the_loaders_memory_and_go_back_to_it(shards):
    loader = ShardLoader(shards, batch_size=8, image=Image(size=64), prefetch=1, threads=1, output="numpy", repeat=True)
    batches = iter(loader)
    kept = next(batches)
    held, copy = kept.images, kept.images.copy()
    assert not held.flags.owndata
    addresses = set()
    for _ in range(40):
        batch = next(batches)
        addresses.add(batch.images.ctypes.data)
        view = torch.from_numpy(batch.images)
        assert view.data_ptr() == batch.images.ctypes.data
        del batch, view
    assert len(addresses) <= 4  # used again and again
    assert (held == copy).all() and held.ctypes.data not in addresses
    loader.close()
    del loader, batches, kept
    gc.collect()
    assert (held == copy).all()  # outlives the loader


def test_tensors_where_torch_is_imported_arrays_where_not(shards):
    assert isinstance(next(iter(ShardLoader(shards, batch_size=2))).images, torch.Tensor)
    text = """
        import sys, trainyard
        loader = trainyard.data.ShardLoader(sys.argv[1], batch_size=2)
        batch = next(iter(loader))
        assert type(batch.images).__module__ == "numpy" and "torch" not in sys.modules
        try:
            trainyard.data.ShardLoader(sys.argv[1], batch_size=2, image=trainyard.data.Image(dtype="bfloat16"))
        except trainyard.InvalidArgument as e:
            print(e)
    """
    assert "import torch" in run_script(text, shards)


def test_the_seed_decides_the_order_and_epochs_differ(shards):
    def epochs(**options):
        loader = ShardLoader(shards, batch_size=4, image=Image(size=8, crop="random", flip=True), **options)
        return [[(batch.sample_ids.tolist(), numpy.asarray(batch.images).tobytes()) for batch in loader] for _ in range(2)]

    first = epochs(seed=3, threads=1)
    assert first == epochs(seed=3, threads=4, prefetch=9)
    assert first[0] != first[1] and first != epochs(seed=4)
    assert sorted(i for ids, _ in first[0] for i in ids) == sorted(i for ids, _ in first[1] for i in ids)


def test_the_same_seed_in_two_processes_is_the_same_stream(shards):
    text = """
        import hashlib, sys, trainyard
        loader = trainyard.data.ShardLoader(sys.argv[1], batch_size=8, seed=5,
                                            image=trainyard.data.Image(size=24, crop="resized", flip=True))
        digest = hashlib.sha256()
        for _ in range(2):
            for batch in loader:
                digest.update(batch.images.tobytes() + batch.sample_ids.tobytes())
        print(digest.hexdigest())
    """
    assert run_script(text, shards) == run_script(text, shards, PYTHONHASHSEED=7)


def test_ranks_share_each_global_batch(shards):
    whole = list(ShardLoader(shards, batch_size=12, image=Image(size=8), rank=0, world_size=1))
    parts = [list(ShardLoader(shards, global_batch_size=12, image=Image(size=8), rank=r, world_size=3)) for r in range(3)]
    for number, batch in enumerate(whole):
        assert batch.sample_ids.tolist() == ids_of(part[number] for part in parts)


def test_independent_ranks_read_their_own_shards(shards):
    loaders = [ShardLoader(shards, batch_size=5, image=Image(size=8), rank=r, world_size=2, mode="independent")
               for r in range(2)]
    for rank, loader in enumerate(loaders):
        names = {os.path.basename(os.path.dirname(key)) for batch in loader for key in batch["keys"]}
        assert names == {f"s-{n:06d}.tar" for n in (rank, rank + 2)}


def test_ends_are_padded_wrapped_or_dropped(shards):
    def last(ends):
        batches = list(ShardLoader(shards, batch_size=8, image=Image(size=8), ends=ends))
        return len(batches), batches[-1], ids_of(batches)

    assert last("drop")[0] == 12
    count, batch, ids = last("pad")
    assert count == 13 and batch.mask.tolist() == [True] * 4 + [False] * 4
    assert sorted(ids[:100]) == list(range(100))
    count, batch, ids = last("wrap")
    rest = set(range(100)) - set(ids[:96])
    assert count == 13 and batch.mask.all() and len(set(ids[96:])) == 8
    assert rest < set(ids[96:]) and set(ids[96:]) - rest <= set(ids[:8])


def test_mixes_keep_their_weights(shards, tmp_path):
    write_shards(tmp_path, 40, 20, prefix="other")
    loader = ShardLoader({str(shards): 3, str(tmp_path): 1}, batch_size=16, image=Image(size=8), repeat=True)
    batches = iter(loader)
    keys = [key for _ in range(256) for key in next(batches)["keys"]]
    assert sum(key.startswith(str(tmp_path)) for key in keys) == len(keys) // 4
    with pytest.raises(TypeError):
        len(loader)


def test_batches_of_one_aspect_each(tmp_path):
    samples = [(f"{i:03d}", {"png": picture(i, (40, 20) if i % 3 else (20, 40), "png")}) for i in range(60)]
    write_shard(tmp_path / "a.tar", samples)
    loader = ShardLoader(tmp_path, batch_size=5, captions=None, image=Image(buckets=[(32, 16), (16, 32)]))
    shapes = [tuple(batch.images.shape) for batch in loader]
    assert sorted(shapes) == [(5, 3, 16, 32)] * 8 + [(5, 3, 32, 16)] * 4
    assert next(iter(loader)).captions == []


def test_bad_samples_are_skipped_and_written_down(tmp_path):
    samples = [(f"{i:03d}", {"jpg": picture(i), "txt": b"x"}) for i in range(20)]
    samples[7][1]["jpg"] = samples[7][1]["jpg"][:200]
    write_shard(tmp_path / "a.tar", samples)
    with pytest.raises(trainyard.Corrupt, match="007"):
        list(ShardLoader(tmp_path, batch_size=4))
    loader = ShardLoader(tmp_path, batch_size=4, on_bad="skip", quarantine=tmp_path / "bad.jsonl")
    assert 7 not in ids_of(loader)
    lines = [json.loads(line) for line in (tmp_path / "bad.jsonl").read_text().splitlines()]
    assert {line["sample_id"] for line in lines} == {7} and "a.tar" in lines[0]["error"]
    assert loader.report()["skipped_count"] == 1 and "bounds" in loader.report()["text"]


def test_a_filter_chooses_by_metadata(tmp_path):
    write_shard(tmp_path / "a.tar", [(f"{i:03d}", {"jpg": picture(i), "txt": b"x", "json": json.dumps({"n": i}).encode()})
                                     for i in range(20)])
    loader = ShardLoader(tmp_path, batch_size=2, filter="n < 5 or n == 12", ends="pad")
    assert set(ids_of(loader)) == {0, 1, 2, 3, 4, 12}
    assert [s["__key__"] for s in trainyard.data.samples(tmp_path, filter="n >= 18")] == ["018", "019"]
    other = ShardLoader(tmp_path, batch_size=2, filter="n < 6")
    with pytest.raises(trainyard.InvalidArgument, match="filter"):
        other.load_state_dict(loader.state_dict())
    with pytest.raises(trainyard.InvalidArgument, match="filter"):
        list(ShardLoader(tmp_path, batch_size=2, filter="n <"))


def test_links_lead_where_they_lead(shards, tmp_path):
    (tmp_path / "away").mkdir()
    shutil.copy(shards / "s-000001.tar", tmp_path / "away/blob")
    (tmp_path / "linked.tar").symlink_to("away/blob")
    batch = next(iter(ShardLoader(tmp_path / "linked.tar", batch_size=5, shuffle=False)))
    assert batch["keys"][0] == f"{tmp_path}/linked.tar/000025" and batch.captions[0] == "caption 25"


def test_names_and_captions_need_not_be_ascii(tmp_path):
    folder = tmp_path / "ünï {x}"
    folder.mkdir()
    samples = [("a b/ключ", {"png": picture(1, (8, 8), "png"), "txt": "漢字".encode()}),
               ("z", {"png": picture(2, (8, 8), "png"), "txt": b"\xff\xfe"})]
    write_shard(folder / "ш.tar", samples)
    batch = next(iter(ShardLoader(folder / "ш.tar", batch_size=2, shuffle=False)))
    assert batch["keys"] == [f"{folder}/ш.tar/a b/ключ", f"{folder}/ш.tar/z"]
    assert batch.captions == ["漢字", "\ufffd\ufffd"]


def test_pixels_of_a_uint8_batch_are_levels(tmp_path):
    write_shard(tmp_path / "a.tar", [("x", {"png": picture(9, (16, 16), "png"), "txt": b""})])
    image = Image(size=16, dtype="uint8", layout="NHWC")
    batch = next(iter(ShardLoader(tmp_path, batch_size=1, image=image, output="numpy")))
    assert (batch.images[0] == pixels(9, (16, 16))).all()


def test_help_says_shapes_and_errors():
    text = ShardLoader.__doc__ + trainyard.data.Batch.__doc__ + Image.__doc__
    for word in ("(batch, 3, height, width)", "global_batch_size", "Corrupt", "[-1, 1]", "s3://"):
        assert word in text
