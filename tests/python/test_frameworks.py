"""Inside torch's DataLoader, torchdata, webdataset, Accelerate and Lightning, as they come."""

import subprocess
import sys

import numpy
import pytest
import torch
import trainyard
import webdataset
from shard_files import WAIT_SECONDS, run_script, script_environment
from torch.utils.data import DataLoader, IterableDataset
from trainyard.data import Image, ShardLoader, samples

TINY = Image(size=4)


def loader_of(folder, **options):
    options.setdefault("batch_size", 12)
    return ShardLoader(folder, image=TINY, **options)


def stream_of(batches):
    return [(b["epoch"], b["batch"], b["sample_ids"].tolist(), b["captions"], b["images"].numpy().tobytes())
            for b in batches]


@pytest.fixture(name="expected")
def fixture_expected(shards):
    """Three epochs of 8 batches."""
    loader = loader_of(shards)
    return [stream_of(loader) for _ in range(3)]


@pytest.mark.parametrize("workers,persistent", [(0, False), (2, False), (2, True), (3, True), (11, False)])
def test_a_data_loader_gives_the_same_stream(shards, expected, workers, persistent):
    loader = loader_of(shards)
    assert isinstance(loader, IterableDataset)
    data = DataLoader(loader, batch_size=None, num_workers=workers, persistent_workers=persistent)
    assert len(data) == 8
    assert [stream_of(data) for _ in range(3)] == expected


def test_workers_go_on_from_a_state_and_after_a_loader_that_was_read(shards, expected):
    loader = loader_of(shards)
    batches = iter(loader)  # threads of the parent run when the workers are forked
    kept = [next(batches) for _ in range(3)]
    state = loader.state_dict()
    loader.load_state_dict(state)
    data = DataLoader(loader, batch_size=None, num_workers=2)
    assert stream_of(data) == expected[0][3:]
    assert stream_of(data) == expected[1]
    assert stream_of(kept) == expected[0][:3]
    with pytest.raises(trainyard.InvalidArgument, match="after=batch"):
        loader.state_dict()
    part = [batch for batch, _ in zip(data, range(5))]
    other = loader_of(shards)
    other.load_state_dict(loader.state_dict(after=part[-1]))
    assert stream_of(other) == expected[2][5:]


def test_workers_obey_set_epoch(shards, expected):
    loader = loader_of(shards)
    data = DataLoader(loader, batch_size=None, num_workers=2)
    for epoch in (1, 0, 0, 2):
        loader.set_epoch(epoch)
        assert stream_of(data) == expected[epoch]


def test_a_spawned_worker_reads_its_part(shards, expected):
    loader = loader_of(shards)
    data = DataLoader(loader, batch_size=None, num_workers=2, multiprocessing_context="spawn")
    loader.set_epoch(1)
    assert stream_of(data) == expected[1]


def test_an_error_of_a_worker_keeps_its_class(tmp_path):
    (tmp_path / "a.tar").write_bytes(b"no tar" * 1000)
    data = DataLoader(ShardLoader(tmp_path, batch_size=2), batch_size=None, num_workers=1)
    with pytest.raises(trainyard.InvalidArgument, match="a.tar"):
        list(data)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("at", [0, 3, 8, 9, 16, 19])
def test_torchdatas_stateful_data_loader_resumes_exactly(shards, expected, workers, at):
    torchdata = pytest.importorskip("torchdata.stateful_dataloader")

    def data_of():
        return torchdata.StatefulDataLoader(loader_of(shards), batch_size=None, num_workers=workers)

    flat = [batch for epoch in expected for batch in epoch]
    data, given = data_of(), []
    while len(given) < at:
        for batch in data:
            given += stream_of([batch])
            if len(given) == at:
                state = data.state_dict()
                break
    if at == 0:
        state = data.state_dict()
    assert given == flat[:at]
    other = data_of()
    other.load_state_dict(state)
    got = []
    for _ in range(4):
        got += stream_of(other)
    assert got[: 24 - at] == flat[at:]


def test_a_webdataset_pipeline_reads_our_samples(shards):
    urls = f"{shards}/s-{{000000..000003}}.tar"

    def pairs(source):
        pipeline = webdataset.DataPipeline(source, webdataset.decode("pil"), webdataset.to_tuple("jpg", "txt"))
        return [(numpy.asarray(picture).tobytes(), text) for picture, text in pipeline]

    theirs = webdataset.WebDataset(urls, shardshuffle=False)
    ours = samples(urls)
    keys = ("__key__", "__url__")
    assert [[s[k] for k in keys] for s in ours] == [[s[k] for k in keys] for s in theirs]
    their_pairs = [(numpy.asarray(p).tobytes(), t) for p, t in theirs.decode("pil").to_tuple("jpg", "txt")]
    assert pairs(samples(urls)) == their_pairs and len(their_pairs) == 100


@pytest.mark.parametrize("workers", [0, 2, 3])
def test_workers_share_the_samples_of_a_pipeline(shards, workers):
    pipeline = webdataset.DataPipeline(samples(shards, shuffle=True), webdataset.to_tuple("__key__", "txt"))
    data = DataLoader(pipeline, batch_size=None, num_workers=workers)
    epochs = [list(data) for _ in range(2)]
    for epoch in epochs:
        assert sorted(int(key) for key, _ in epoch) == list(range(100))
    assert epochs[0] != epochs[1]


def test_ranks_share_the_samples(shards):
    keys = [s["__key__"] for rank in range(3) for s in samples(shards, rank=rank, world_size=3)]
    assert sorted(map(int, keys)) == list(range(100))


def model_and_optimizer():
    model = torch.nn.Linear(48, 1)
    return model, torch.optim.SGD(model.parameters(), lr=0.01)


def test_accelerate_takes_a_loader_and_a_data_loader_around_it(shards, expected):
    accelerate = pytest.importorskip("accelerate")
    configuration = accelerate.utils.DataLoaderConfiguration(dispatch_batches=False)
    accelerator = accelerate.Accelerator(cpu=True, dataloader_config=configuration)
    model, optimizer = model_and_optimizer()
    wrapped = DataLoader(loader_of(shards), batch_size=None)
    model, optimizer, ours, theirs = accelerator.prepare(model, optimizer, loader_of(shards), wrapped)
    for data in (ours, theirs):
        for epoch in range(3):
            batches = []
            for batch in data:
                with accelerator.accumulate(model):
                    accelerator.backward(model(batch.images.flatten(1)).square().mean())
                    optimizer.step()
                    optimizer.zero_grad()
                batches.append(batch)
            assert stream_of(batches) == expected[epoch]


TWO_PROCESSES = """
import sys
import accelerate, torch, trainyard
accelerator = accelerate.Accelerator(cpu=True)
loader = trainyard.data.ShardLoader(sys.argv[1], batch_size=5, image=trainyard.data.Image(size=4))
model = torch.nn.Linear(48, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
seen = []
for batch in loader:
    accelerator.backward(model(batch.to(accelerator.device).images.flatten(1)).square().mean())
    optimizer.step()
    optimizer.zero_grad()
    seen.append(accelerator.gather(batch.sample_ids))
if accelerator.is_main_process:
    print("SEEN", accelerator.num_processes, *torch.cat(seen).tolist())
accelerator.end_training()
"""


def test_accelerate_in_two_processes_shares_the_samples(shards, tmp_path):
    pytest.importorskip("accelerate")
    script = tmp_path / "train.py"
    script.write_text(TWO_PROCESSES)
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", script, shards],
        capture_output=True, text=True, timeout=WAIT_SECONDS, env=script_environment(OMP_NUM_THREADS=1))
    line = [line for line in done.stdout.splitlines() if line.startswith("SEEN ")]
    assert line, done.stderr[-2000:]
    _, processes, *ids = line[0].split()
    assert processes == "2" and sorted(map(int, ids)) == list(range(100))


LIGHTNING = """
    import sys, warnings
    import lightning, torch, trainyard
    warnings.filterwarnings("ignore")

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(48, 1)
            self.seen = []
        def training_step(self, batch, index):
            self.seen.append((self.current_epoch, batch["epoch"], batch["batch"], batch["sample_ids"].tolist()))
            return self.layer(batch["images"].flatten(1)).square().mean()
        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    def fit(loader, **options):
        model = Model()
        ckpt = options.pop("ckpt_path", None)
        trainer = lightning.Trainer(accelerator="cpu", devices=1, logger=False, enable_progress_bar=False,
                                    enable_model_summary=False, enable_checkpointing=False,
                                    default_root_dir=sys.argv[2], **options)
        trainer.fit(model, train_dataloaders=loader, ckpt_path=ckpt)
        return model.seen, trainer

    def loader():
        return trainyard.data.ShardLoader(sys.argv[1], batch_size=12, image=trainyard.data.Image(size=4))

    whole, _ = fit(loader(), max_epochs=2)
    assert [(e, b) for _, e, b, _ in whole] == [(e, b) for e in range(2) for b in range(8)], whole
    assert all(a == b for a, b, _, _ in whole)
    wrapped, _ = fit(torch.utils.data.DataLoader(loader(), batch_size=None, num_workers=2), max_epochs=2)
    assert wrapped == whole
    # Saved in mid-epoch, and gone on with by another trainer.
    class Save(lightning.Callback):
        def on_train_batch_end(self, trainer, *_):
            if trainer.global_step == 11:
                trainer.save_checkpoint(sys.argv[2] + "/state.ckpt")

    first, _ = fit(loader(), max_steps=11, callbacks=[Save()])
    second, _ = fit(loader(), max_epochs=2, ckpt_path=sys.argv[2] + "/state.ckpt")
    assert first + second == whole, (first, second)
    print("exact")
"""


def test_lightning_fits_with_it_unchanged_and_resumes_exactly(shards, tmp_path):
    pytest.importorskip("lightning")
    assert run_script(LIGHTNING, shards, tmp_path).splitlines()[-1] == "exact"
