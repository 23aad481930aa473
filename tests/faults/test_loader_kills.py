"""Loader processes killed at random moments: each sample once in an epoch, the same pixels, no debris,
with another number of ranks after every kill."""

import io
import json
import os
import pathlib
import random
import signal
import subprocess
import tarfile
import threading

import numpy
import pytest
from PIL import Image

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("YARD_BIN_DIR", ROOT / "build/release/bin"))
TOOL = BIN / "loader_tool"
WAIT_SECONDS = 120  # only a failure comes near it
SAMPLES = 10_000
BATCH = 60
EPOCHS = 2
KILLS = 12


def write_shard(path, numbers):
    with tarfile.open(path, "w") as tar:
        for number in numbers:
            pixels = numpy.full((2, 3, 3), number % 251, "uint8")
            pixels[0, 0] = number // 251
            out = io.BytesIO()
            Image.fromarray(pixels).save(out, "png")
            for extension, content in (("png", out.getvalue()), ("txt", b"caption")):
                entry = tarfile.TarInfo(f"{number:06d}.{extension}")
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    folder = tmp_path_factory.mktemp("killed") / "shards"
    folder.mkdir()
    for first in range(0, SAMPLES, 1250):
        write_shard(folder / f"s-{first // 1250:03d}.tar", range(first, first + 1250))
    subprocess.run([BIN / "yard", "shards", "index", folder], check=True, capture_output=True, timeout=WAIT_SECONDS)
    return folder


class Ranks:
    """One process for each, that goes on where the state of the run stands."""

    def __init__(self, shards, folder, state, world_size, **more):
        self.lines = []
        self.states = [folder / f"state-{rank}.json" for rank in range(world_size)]
        for path in self.states:
            path.write_text(json.dumps(state))
        self.processes = [
            subprocess.Popen([TOOL, json.dumps({"folder": str(shards), "state": str(self.states[rank]), "rank": rank,
                                                "world_size": world_size, "global_batch_size": BATCH,
                                                "epochs": EPOCHS, "seed": 5, "threads": 2, **more})],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             env={**os.environ, "TMPDIR": str(folder)})
            for rank in range(world_size)]
        self.threads = [threading.Thread(target=self._read, args=(rank,)) for rank in range(world_size)]
        self.changed = threading.Condition()
        for thread in self.threads:
            thread.start()

    def _read(self, rank):
        for text in self.processes[rank].stdout:
            if not text.endswith("\n"):
                return  # killed in the middle of it
            with self.changed:
                self.lines.append((rank, json.loads(text)))
                self.changed.notify_all()

    def wait_for_lines(self, count):
        with self.changed:
            assert self.changed.wait_for(
                lambda: len(self.lines) >= count or all(p.poll() is not None for p in self.processes), WAIT_SECONDS)

    def kill(self):
        for process in self.processes:
            process.send_signal(signal.SIGKILL)

    def end(self):
        """Exit codes and what they said."""
        answers = [(process.wait(WAIT_SECONDS), process.stderr.read()) for process in self.processes]
        for thread in self.threads:
            thread.join(WAIT_SECONDS)
        for process in self.processes:
            process.stdout.close()
            process.stderr.close()
        return answers

    def state(self):
        """Behind the last global batch that every rank has written down."""
        states = [json.loads(path.read_text()) for path in self.states]
        return min(states, key=lambda state: (state["epoch"], state["batch"]))


def by_batch(lines, world_size):
    """{(epoch, batch): (ids, ...)} of those that all ranks had; what was read twice must be equal."""
    parts = {}
    for rank, line in lines:
        key = line["epoch"], line["batch"], rank
        assert parts.setdefault(key, line) == line
    return {key[:2]: [parts[*key[:2], rank] for rank in range(world_size)]
            for key in parts if all((*key[:2], rank) in parts for rank in range(world_size))}


@pytest.fixture(scope="module")
def undisturbed(shards, tmp_path_factory):
    ranks = Ranks(shards, tmp_path_factory.mktemp("undisturbed"), {"epoch": 0, "batch": 0}, 1)
    assert ranks.end() == [(0, "")]
    return {key: part for key, (part,) in by_batch(ranks.lines, 1).items()}


def test_each_sample_comes_once_in_an_epoch_and_epochs_differ(undisturbed):
    epochs = [[i for (e, _), line in sorted(undisturbed.items()) if e == epoch for i in line["ids"]]
              for epoch in range(EPOCHS)]
    for ids in epochs:
        assert sorted(ids) == list(range(SAMPLES))
    assert epochs[0] != epochs[1]


def test_killed_and_resumed_with_another_number_of_ranks_nothing_is_lost_or_read_twice(
        shards, undisturbed, tmp_path):
    draw = random.Random(3)
    shared_memory = set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()
    state, got, kills = {"epoch": 0, "batch": 0}, {}, 0
    worlds = []
    while (state["epoch"], state["batch"]) < (EPOCHS - 1, max(b for _, b in undisturbed) + 1):
        world_size = draw.choice([1, 2, 3]) if kills < KILLS else 2
        worlds.append(world_size)
        folder = tmp_path / str(len(worlds))
        folder.mkdir()
        ranks = Ranks(shards, folder, state, world_size, threads=draw.choice([1, 3]))
        if kills < KILLS:
            ranks.wait_for_lines(draw.randrange(2, 50) * world_size)
            ranks.kill()
            kills += 1
        answers = ranks.end()
        assert all(code in (0, -signal.SIGKILL) for code, _ in answers), answers
        # Nothing but the states, and halves of them, which are our own.
        assert all(name.startswith((".state", "state")) for name in os.listdir(folder))
        new = ranks.state()
        for key, parts in by_batch(ranks.lines, world_size).items():
            if key >= (new["epoch"], new["batch"]):
                continue  # done after the state that it goes on from
            assert key not in got
            got[key] = parts
        state = new
    assert kills == KILLS and len(set(worlds)) == 3
    assert set(got) == set(undisturbed)
    for key, parts in got.items():
        assert [i for part in parts for i in part["ids"]] == undisturbed[key]["ids"]
        if len(parts) == 1:
            assert parts[0]["pixels"] == undisturbed[key]["pixels"]
    assert (set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()) <= shared_memory


def test_a_stop_in_the_middle_does_not_hang_the_others(shards, tmp_path):
    """Ranks know nothing of each other: one that is stopped leaves the rest alone."""
    ranks = Ranks(shards, tmp_path, {"epoch": 0, "batch": 0}, 3)
    ranks.processes[1].send_signal(signal.SIGSTOP)
    for rank in (0, 2):
        assert ranks.processes[rank].wait(WAIT_SECONDS) == 0
    ranks.processes[1].send_signal(signal.SIGCONT)
    assert ranks.end() == [(0, "")] * 3
    assert len(by_batch(ranks.lines, 3)) == EPOCHS * -(-SAMPLES // BATCH)
