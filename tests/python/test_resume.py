"""Nothing lost, nothing repeated: states, other worlds, killed processes."""

import json
import os
import signal

import numpy
import pytest
import trainyard
from shard_files import WAIT_SECONDS, run_script, start_script, write_shards
from trainyard.data import Image, ShardLoader

TINY = Image(size=2)


def loader_of(folder, **options):
    options.setdefault("image", TINY)
    if "global_batch_size" not in options:
        options.setdefault("batch_size", 12)
    return ShardLoader(folder, **options)


def stream_of(loader, count):
    """(epoch, batch, samples, pixels) of so many batches, over epochs."""
    out = []
    while len(out) < count:
        for batch in loader:
            out.append((batch["epoch"], batch["batch"], batch.sample_ids.tolist(), numpy.asarray(batch.images).tobytes()))
            if len(out) == count:
                break
    return out


@pytest.mark.parametrize("at", [0, 1, 5, 7, 8, 9, 16, 20])  # 8 batches an epoch
def test_a_state_at_any_batch_goes_on_exactly(shards, at):
    options = {"seed": 9, "image": Image(size=8, crop="random", flip=True)}
    expected = stream_of(loader_of(shards, **options), 24)
    loader = loader_of(shards, prefetch=6, **options)
    assert stream_of(loader, at) == expected[:at]
    state = json.loads(json.dumps(loader.state_dict()))  # plain numbers and texts
    other = loader_of(shards, threads=2, prefetch=1, **options)
    other.load_state_dict(state)
    assert other.state_dict()["batch"] == state["batch"]
    got = []
    while len(got) < 24 - at:  # the first `for` may have no batch left in its epoch
        got += stream_of_epoch(other)
    assert got[: 24 - at] == expected[at:]


def stream_of_epoch(loader):
    return [(b["epoch"], b["batch"], b.sample_ids.tolist(), numpy.asarray(b.images).tobytes()) for b in loader]


def test_the_state_behind_a_batch_is_the_one_after_it(shards):
    loader = loader_of(shards)
    batches = list(loader)
    other = loader_of(shards)
    other.load_state_dict(loader.state_dict(after=batches[4]))
    assert [b["batch"] for b in other] == [5, 6, 7]


def test_a_for_that_was_left_is_followed_by_the_next_epoch(shards):
    loader = loader_of(shards)
    for _ in loader:
        break
    assert {batch["epoch"] for batch in loader} == {1}
    first, second = iter(loader), iter(loader)
    next(second)
    with pytest.raises(RuntimeError, match="another one"):
        next(first)


def test_a_state_of_another_stream_is_refused_by_name(shards, tmp_path):
    loader = loader_of(shards, seed=1)
    next(iter(loader))
    state = loader.state_dict()
    write_shards(tmp_path, 100, 50)
    for words, other in [
        ("seed is 1, here it is 2", loader_of(shards, seed=2)),
        ("shard_count is 4, here it is 2", loader_of(tmp_path, seed=1)),
        ("mode is 'global'", loader_of(shards, seed=1, mode="independent")),
        ("shuffle is True", loader_of(shards, seed=1, shuffle=False)),
        ("global batches of 12 samples, here they have 10", loader_of(shards, seed=1, batch_size=10)),
        ("no whole number", loader_of(shards, seed=1, batch_size=10)),
    ]:
        with pytest.raises(trainyard.InvalidArgument, match=words):
            other.load_state_dict(state)
    with pytest.raises(trainyard.InvalidArgument, match="no state"):
        loader.load_state_dict({"epoch": 1})


def test_other_data_under_the_same_names_is_refused(tmp_path):
    for name, count in (("a", 40), ("b", 39)):
        (tmp_path / name).mkdir()
        write_shards(tmp_path / name, count, 20)
    loader = loader_of(tmp_path / "a", batch_size=4)
    next(iter(loader))
    other = loader_of(tmp_path / "b", batch_size=4)
    other.load_state_dict(loader.state_dict())
    with pytest.raises(trainyard.InvalidArgument, match="of 40 samples; this one has 39"):
        next(iter(other))


def test_data_may_be_moved(shards, tmp_path):
    write_shards(tmp_path, 100, 25)
    expected = stream_of(loader_of(shards), 10)
    loader = loader_of(shards)
    stream_of(loader, 6)
    other = loader_of(f"{tmp_path}/s-{{000000..000003}}.tar")
    other.load_state_dict(loader.state_dict())
    assert stream_of(other, 2) == expected[6:8]


def test_the_world_changes_in_mid_epoch_and_every_sample_comes_once(many):
    """2 ranks, then 3, then 1, over 10,000 samples; all that the next ones get is a state."""
    state, seen, sequence = None, [], []
    for world_size, batch_count in ((2, 251), (3, 320), (1, None)):
        ranks = [loader_of(many, global_batch_size=12, seed=4, rank=r, world_size=world_size, ends="pad")
                 for r in range(world_size)]
        streams = []
        for loader in ranks:
            if state is not None:
                loader.load_state_dict(state)
            streams.append(iter(loader))
        states = []
        while batch_count is None or len(states) < batch_count:
            parts = [next(stream, None) for stream in streams]
            if parts[0] is None:
                break
            assert len({part["batch"] for part in parts}) == 1
            whole = [i for part in parts for i, real in zip(part.sample_ids.tolist(), part.mask.tolist()) if real]
            seen += whole
            sequence.append(whole)
            states.append([loader.state_dict() for loader in ranks])
        assert all(s == states[-1][0] for s in states[-1])
        state = states[-1][0]
    assert sorted(seen) == list(range(10_000))
    alone = [b.sample_ids[b.mask].tolist() for b in loader_of(many, seed=4, ends="pad")]
    assert sequence == alone


def test_the_batch_size_may_change_with_the_world(many):
    first = loader_of(many, batch_size=12, rank=0, world_size=1)
    seen = [i for _, _, ids, _ in stream_of(first, 10) for i in ids]
    parts = [loader_of(many, batch_size=10, rank=r, world_size=2) for r in range(2)]
    for loader in parts:
        loader.load_state_dict(first.state_dict())
        seen += [i for batch in loader for i in batch.sample_ids.tolist()]
    assert sorted(seen) == list(range(10_000))


def test_set_epoch(shards):
    loader = loader_of(shards)
    loader.set_epoch(0)
    assert {b["epoch"] for b in loader} == {0}
    loader.set_epoch(1)  # what comes anyway
    assert {b["epoch"] for b in loader} == {1}
    loader.set_epoch(7)
    assert {b["epoch"] for b in loader} == {7}
    iteration = iter(loader)
    next(iteration)
    loader.set_epoch(8)
    assert [b["epoch"] for b in loader] == [8] * 8


def test_frameworks_that_count_epochs_from_0_again_change_nothing(shards):
    loader = loader_of(shards)
    stream_of(loader, 29)  # epoch 3, 5 batches
    other = loader_of(shards)
    other.load_state_dict(loader.state_dict())
    got = []
    for epoch in range(2):
        other.set_epoch(epoch)
        got += [(b["epoch"], b["batch"]) for b in other]
    assert got == [(3, 5), (3, 6), (3, 7)] + [(4, b) for b in range(8)]


def test_repeat_goes_on_without_end(shards):
    loader = loader_of(shards, repeat=True)
    batches = iter(loader)
    got = [(b["epoch"], b["batch"]) for b in (next(batches) for _ in range(18))]
    assert got == [(i // 8, i % 8) for i in range(18)]
    other = loader_of(shards, repeat=True)
    other.load_state_dict(loader.state_dict())
    assert next(iter(other))["batch"] == 2


KILLED = """
    import json, os, sys, trainyard
    folder, log, state = sys.argv[1:]
    loader = trainyard.data.ShardLoader(folder, batch_size=16, seed=2, threads=4, prefetch=16, ends="pad",
                                        image=trainyard.data.Image(size=2))
    if os.path.exists(state):
        loader.load_state_dict(json.load(open(state)))
    with open(log, "a") as out:
        for batch in loader:
            line = json.dumps([batch["epoch"], batch["batch"], batch.sample_ids[batch.mask].tolist()])
            # The batch and the state behind it, at once, as a checkpoint does it.
            with open(state + ".new", "w") as file:
                json.dump(loader.state_dict(), file)
            os.replace(state + ".new", state)
            out.write(line + "\\n")
            out.flush()
            if batch["batch"] % 20 == 19:
                print("going", flush=True)
"""


def files_of(folder):
    return set(os.listdir(folder)) if os.path.isdir(folder) else set()


def test_a_killed_process_leaves_nothing_and_the_next_goes_on(many, tmp_path):
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    shared_memory = files_of("/dev/shm")
    log, state = tmp_path / "log", tmp_path / "state.json"
    for _ in range(3):
        process = start_script(KILLED, many, log, state, TMPDIR=temporary)
        assert process.stdout.readline() == "going\n"
        os.kill(process.pid, signal.SIGKILL)
        process.communicate(timeout=WAIT_SECONDS)
        assert process.returncode == -signal.SIGKILL
        assert files_of("/dev/shm") <= shared_memory
        assert not list(temporary.iterdir())
    run_script(KILLED, many, log, state, TMPDIR=temporary)
    lines = {}
    for line in log.read_text().splitlines():
        epoch, batch, ids = json.loads(line)
        # Killed between state and line, one line is missing; none is there twice.
        assert (epoch, batch) not in lines
        lines[epoch, batch] = ids
    expected = {(b["epoch"], b["batch"]): b.sample_ids[b.mask].tolist()
                for b in loader_of(many, batch_size=16, seed=2, ends="pad")}
    assert len(expected) - 3 <= len(lines) and lines.items() <= expected.items()


def test_samples_go_on_behind_the_last_one(shards):
    expected = [s["__key__"] for s in trainyard.data.samples(shards, shuffle=True, seed=3)]
    for at in (0, 1, 15, 16, 40, 99, 100):
        stream = trainyard.data.samples(shards, shuffle=True, seed=3)
        iteration = iter(stream)
        assert [next(iteration)["__key__"] for _ in range(at)] == expected[:at]
        other = trainyard.data.samples(shards, shuffle=True, seed=3)
        other.load_state_dict(stream.state_dict())
        assert [s["__key__"] for s in other] == expected[at:]
