"""Checkpoints to and from torch.distributed.checkpoint, safetensors and what transformers reads."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
import torch.distributed.checkpoint as dcp  # noqa: E402
from safetensors import safe_open  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

from trainyard import checkpoint, errors  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
YARD = pathlib.Path(os.environ.get("YARD_BUILD_DIR", ROOT / "build/release")) / "bin/yard"

pytestmark = pytest.mark.skipif(not YARD.exists(), reason=f"{YARD} is not built")


def yard(*arguments, ok=True):
    done = subprocess.run([str(YARD), "checkpoint", *map(str, arguments)], capture_output=True, text=True)
    assert (done.returncode == 0) == ok, done.stderr
    return done.stdout if ok else done.stderr


def some_state():
    dice = torch.Generator().manual_seed(3)
    return {
        "model.weight": torch.randn(17, 33, generator=dice),
        "model.bias": torch.randn(33, generator=dice).to(torch.bfloat16),
        "half": torch.randn(5, 7, 2, generator=dice).half(),
        "double": torch.randn(3, generator=dice).double(),
        "step": torch.tensor(41),
        "mask": torch.tensor([True, False, True]),
        "bytes": torch.arange(9, dtype=torch.uint8),
        "empty": torch.empty(0, 4),
    }


def assert_same(found, expected):
    assert sorted(found) == sorted(expected)
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype, name
        assert torch.equal(found[name], tensor), name


def plain(folder):
    """All tensors of the safetensors files in a folder."""
    found = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            found.update((name, file.get_tensor(name)) for name in file.keys())
    return found


def test_a_dcp_folder_becomes_a_checkpoint_and_the_same_dcp_folder_again(tmp_path):
    state = some_state()
    dcp.save({**state, "epoch": 3}, checkpoint_id=tmp_path / "dcp", no_dist=True)
    left_out = checkpoint.from_dcp(tmp_path / "dcp", str(tmp_path / "run"), step=7, yard=YARD)
    assert left_out == ["epoch"]
    assert "step 7: whole" in yard("verify", tmp_path / "run")
    names = checkpoint.to_dcp(str(tmp_path / "run"), tmp_path / "again", yard=YARD)
    assert names == sorted(state)
    found = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
    dcp.load(found, checkpoint_id=tmp_path / "again", no_dist=True)
    assert_same(found, state)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("yard-dcp")] == []


SHARDED = """
import sys, torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

rank, store, out = int(sys.argv[1]), sys.argv[2], sys.argv[3]
dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=2)
mesh = init_device_mesh("cpu", (2,))
whole = torch.arange(5 * 6, dtype=torch.float32).reshape(5, 6)
state = {
    "rows": distribute_tensor(whole, mesh, [Shard(0)]),
    "columns": distribute_tensor(whole + 100, mesh, [Shard(1)]),
    "replicated": torch.full((3,), 7.0),
}
dcp.save({"model": state}, checkpoint_id=out)
dist.destroy_process_group()
"""


def test_what_two_ranks_saved_sharded_by_rows_and_columns_becomes_whole(tmp_path):
    ranks = [
        subprocess.Popen([sys.executable, "-c", SHARDED, str(rank), str(tmp_path / "store"), str(tmp_path / "dcp")])
        for rank in range(2)
    ]
    assert [rank.wait(timeout=300) for rank in ranks] == [0, 0]
    checkpoint.from_dcp(tmp_path / "dcp", str(tmp_path / "run"), yard=YARD)
    yard("export", tmp_path / "run", tmp_path, "--prefix", "model.", "--stem", "whole")
    whole = torch.arange(30, dtype=torch.float32).reshape(5, 6)
    assert_same(
        plain(tmp_path), {"rows": whole, "columns": whole + 100, "replicated": torch.full((3,), 7.0)}
    )


def test_safetensors_files_are_imported_and_exported_to_the_same_tensors(tmp_path):
    state = some_state()
    (tmp_path / "in").mkdir()
    save_file(state, tmp_path / "in/model.safetensors")
    yard("import", tmp_path / "in/model.safetensors", tmp_path / "run", "--step", 3)
    (tmp_path / "out").mkdir()
    yard("export", tmp_path / "run", tmp_path / "out")
    assert_same(plain(tmp_path / "out"), state)
    lines = [json.loads(line) for line in yard("ls", tmp_path / "run", "--json").splitlines()]
    assert [(line["step"], line["whole"], line["tensor_count"]) for line in lines] == [(3, True, len(state))]


def test_the_sharded_export_opens_in_transformers(tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4
    )
    model = transformers.LlamaForCausalLM(config)
    model.save_pretrained(tmp_path / "in")
    yard("import", tmp_path / "in", tmp_path / "run")
    (tmp_path / "out").mkdir()
    files = yard("export", tmp_path / "run", tmp_path / "out", "--file-size-max", "20kB").splitlines()
    assert files[-1].endswith("model.safetensors.index.json") and len(files) > 3
    config.save_pretrained(tmp_path / "out")
    again = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "out")
    assert_same(again.state_dict(), model.state_dict())
    # And what transformers cut into several files comes in by its index.
    model.save_pretrained(tmp_path / "cut", max_shard_size="20KB")
    yard("import", tmp_path / "cut", tmp_path / "run", "--step", 5)
    yard("verify", tmp_path / "run", "--all")


def test_a_damaged_file_is_named_with_its_tensor(tmp_path):
    (tmp_path / "in").mkdir()
    save_file(some_state(), tmp_path / "in/model.safetensors")
    yard("import", tmp_path / "in", tmp_path / "run", "--step", 1)
    path = next((tmp_path / "run/step-00000001").glob("data-*/*.safetensors"))
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    error = yard("verify", tmp_path / "run", ok=False)
    assert path.name in error and "tensor '" in error and "checksum" in error
    yard("export", tmp_path / "run", tmp_path, ok=False)


def test_prune_and_rm_remove_what_they_say(tmp_path):
    save_file({"w": torch.ones(3)}, tmp_path / "w.safetensors")
    for step in (10, 20, 30, 40):
        yard("import", tmp_path / "w.safetensors", tmp_path / "run", "--step", step)
    assert "would remove step 10" in yard("prune", tmp_path / "run", "--keep", 2, "--every", 20, "--dry-run")
    yard("prune", tmp_path / "run", "--keep", 2, "--every", 20)
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        "step-00000020", "step-00000030", "step-00000040",
    ]
    yard("rm", tmp_path / "run", "--step", 30)
    assert "has no step 30" in yard("rm", tmp_path / "run", "--step", 30, ok=False)
    yard("prune", tmp_path / "run", "--keep", 0, ok=False)


def test_what_is_no_dcp_folder_or_not_empty_is_refused(tmp_path):
    with pytest.raises(errors.NotFound, match="is no folder of torch.distributed.checkpoint"):
        checkpoint.from_dcp(tmp_path, str(tmp_path / "run"), yard=YARD)
    (tmp_path / "full").mkdir()
    (tmp_path / "full/x").touch()
    with pytest.raises(errors.InvalidArgument, match="is not empty"):
        checkpoint.to_dcp(str(tmp_path), tmp_path / "full", yard=YARD)
    with pytest.raises(errors.NotFound, match="no whole checkpoint"):
        checkpoint.to_dcp(str(tmp_path), tmp_path / "new", yard=YARD)
