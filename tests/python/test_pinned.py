"""pin_memory: images in memory of torch's allocator, which here is one that pins nothing."""

import gc

import pytest
import trainyard
from trainyard.data import Image, ShardLoader, pinned

torch = pytest.importorskip("torch")

IMAGE = Image(size=32, flip=True)


@pytest.fixture()
def allocations(monkeypatch):
    """Sizes of what was asked for, with ordinary memory instead of pinned."""
    sizes = []

    def allocate(size_bytes):
        sizes.append(size_bytes)
        memory = torch.empty(size_bytes + 64, dtype=torch.uint8)
        memory = memory[-memory.data_ptr() % 64:][:size_bytes]
        return memory, memory.data_ptr()

    monkeypatch.setattr(pinned, "is_possible", lambda: True)
    monkeypatch.setattr(pinned, "allocate", allocate)
    return sizes


@pytest.mark.skipif(torch.cuda.is_available(), reason="has a GPU")
def test_without_a_gpu_memory_is_plain_and_that_is_told(shards):
    plain = next(iter(ShardLoader(shards, batch_size=10, image=IMAGE)))
    with pytest.warns(UserWarning, match="no GPU"):
        loader = ShardLoader(shards, batch_size=10, image=IMAGE, pin_memory=True)
    batch = next(iter(loader))
    assert torch.equal(batch.images, plain.images) and not batch.images.is_pinned()


def test_arrays_of_numpy_are_not_pinned(shards, allocations):
    with pytest.raises(trainyard.InvalidArgument, match="numpy"):
        ShardLoader(shards, batch_size=10, image=IMAGE, output="numpy", pin_memory=True)


@pytest.mark.parametrize("dtype", ["float32", "uint8", "bfloat16"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_the_images_are_those_of_a_plain_loader(shards, allocations, dtype, layout):
    image = Image(size=32, flip=True, dtype=dtype, layout=layout)
    plain = list(ShardLoader(shards, batch_size=10, image=image, seed=3))
    batches = list(ShardLoader(shards, batch_size=10, image=image, seed=3, pin_memory=True))
    assert len(batches) == len(plain) == 10
    for ours, theirs in zip(batches, plain):
        assert ours.images.dtype == theirs.images.dtype
        assert torch.equal(ours.images, theirs.images)
        assert ours.captions == theirs.captions and "image_size" not in ours
    assert len(allocations) >= 10 and set(allocations) == {allocations[0]}


def test_buckets_have_images_of_their_sizes(shards, allocations):
    image = Image(buckets=((48, 32), (32, 48)))
    for batch in ShardLoader(shards, batch_size=10, image=image, pin_memory=True):
        assert batch.images.shape == (10, 3, 32, 48)


# A GPU may be copying from a batch whose tensors are gone already: torch's allocator knows, we do not.
def test_the_memory_of_a_batch_is_never_used_for_the_next(shards, allocations):
    loader = ShardLoader(shards, batch_size=10, image=IMAGE, pin_memory=True)
    count = sum(1 for _ in loader)
    assert len(allocations) >= count


def test_tensors_outlive_their_loader(shards, allocations):
    loader = ShardLoader(shards, batch_size=10, image=IMAGE, pin_memory=True, shuffle=False)
    kept = next(iter(loader)).images
    expected = kept.clone()
    loader.close()
    del loader
    gc.collect()
    assert torch.equal(kept, expected)


def test_an_allocation_that_fails_is_an_error_of_the_batch(shards, monkeypatch):
    def allocate(size_bytes):
        raise RuntimeError("no page is left")

    monkeypatch.setattr(pinned, "is_possible", lambda: True)
    monkeypatch.setattr(pinned, "allocate", allocate)
    with pytest.raises(trainyard.Internal, match="no page is left"):
        next(iter(ShardLoader(shards, batch_size=10, image=IMAGE, pin_memory=True)))


def test_workers_of_a_dataloader_say_where_it_belongs(shards, allocations):
    loader = ShardLoader(shards, batch_size=10, image=IMAGE, pin_memory=True)
    workers = torch.utils.data.DataLoader(loader, batch_size=None, num_workers=1)
    with pytest.raises(trainyard.InvalidArgument, match="DataLoader"):
        list(workers)
