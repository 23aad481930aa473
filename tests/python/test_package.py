"""The README's example, the wheel, and what an editor sees."""

import inspect
import os
import pathlib
import re
import subprocess
import sys

import pytest
import trainyard
from shard_files import PACKAGE_DIR, ROOT, run_script, script_environment, write_shards

BUILD_SECONDS = 1800


def examples_of(page):
    return re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


def test_the_readmes_example_runs(tmp_path):
    (example,) = examples_of("README.md")
    assert len(example.splitlines()) == 10
    (tmp_path / "shards").mkdir()
    write_shards(tmp_path / "shards", 70, 35)
    run_script(f"import os; os.chdir({str(tmp_path)!r})\n" + example + "assert batch['images'].shape == (32, 3, 256, 256)\n")
    assert (tmp_path / "data-state.pt").exists()


def test_editors_and_help_know_the_package():
    folder = pathlib.Path(trainyard.__file__).parent
    assert folder == PACKAGE_DIR / "trainyard"
    assert (folder / "py.typed").exists() and (folder / "_native.pyi").exists()
    for name in ("ShardLoader", "Image", "Batch", "samples", "expand"):
        thing = getattr(trainyard.data, name)
        assert len(inspect.getdoc(thing)) > 200
    for name in trainyard.__all__:
        assert inspect.getdoc(getattr(trainyard, name)) or name == "set_log_level"


def test_the_versions_agree():
    project = (ROOT / "pyproject.toml").read_text()
    assert f'version = "{trainyard.__version__}"' in project
    assert f"VERSION {trainyard.__version__} " in (ROOT / "CMakeLists.txt").read_text()
    for line in (ROOT / "requirements.txt").read_text().splitlines():
        assert not line.startswith("nanobind==") or f'"{line}"' in project


def run(*command, **variables):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=BUILD_SECONDS,
                          env={**script_environment(**variables), "PYTHONPATH": ""})


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Of an environment that has torch."""
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    folder = tmp_path_factory.mktemp("wheel")
    # The compiler by the name that the build uses, so that objects compiled there serve here.
    built = run(*pip, "wheel", ROOT, "--no-deps", "-w", folder, CCACHE_BASEDIR=ROOT, CXX="c++",
                CMAKE_BUILD_PARALLEL_LEVEL=os.cpu_count())
    if "No matching distribution" in built.stderr:
        pytest.skip("the wheel's build requirements cannot be reached from here")
    assert built.returncode == 0, built.stdout[-3000:] + built.stderr[-3000:]
    (path,) = folder.glob("trainyard-*.whl")
    return path


def test_the_wheel_works_without_torch(wheel, shards, tmp_path):
    assert run(sys.executable, "-m", "venv", tmp_path / "env").returncode == 0
    python = tmp_path / "env/bin/python"
    installed = run(python, "-m", "pip", "--disable-pip-version-check", "install", wheel)
    assert installed.returncode == 0, installed.stderr
    text = """
import importlib.util, sys, trainyard
assert importlib.util.find_spec("torch") is None and "env/lib" in trainyard.__file__
loader = trainyard.data.ShardLoader(sys.argv[1], batch_size=10, image=trainyard.data.Image(size=16))
print(sorted(i for batch in loader for i in batch.sample_ids.tolist()) == list(range(100)))
"""
    used = run(python, "-c", text, shards)
    assert used.stdout == "True\n", used.stderr


def test_the_wheel_has_trainyard_distributed_for_the_torch_that_it_was_built_beside(wheel, tmp_path):
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    installed = run(*pip, "install", "--no-deps", "--target", tmp_path / "site", wheel)
    assert installed.returncode == 0, installed.stderr
    text = """
import sys
sys.path.insert(0, sys.argv[1])
import torch, torch.distributed as dist, trainyard.distributed
assert trainyard.__file__.startswith(sys.argv[1]), trainyard.__file__
dist.init_process_group("yard", store=dist.HashStore(), rank=0, world_size=1)
value = torch.ones(3)
dist.all_reduce(value)
print(value.tolist())
"""
    used = run(sys.executable, "-c", text, tmp_path / "site")
    assert used.stdout == "[1.0, 1.0, 1.0]\n", used.stderr
