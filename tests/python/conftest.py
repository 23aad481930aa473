"""The package of this build, and small shards."""

import os
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE_DIR = pathlib.Path(os.environ.get("YARD_PYTHON_DIR", ROOT / "build/release/python"))
sys.path.insert(0, str(PACKAGE_DIR))


def pytest_ignore_collect(collection_path):
    """Without Python's headers or nanobind the package is not built; said aloud by one test."""
    is_built = any((PACKAGE_DIR / "trainyard").glob("_native*.so"))
    return not is_built and collection_path.name not in ("test_built.py", "python")


@pytest.fixture(scope="session")
def shards(tmp_path_factory):
    """100 samples of JPEG and text in 4 shards."""
    from shard_files import write_shards

    return write_shards(tmp_path_factory.mktemp("shards"), 100, 25)


@pytest.fixture(scope="session")
def many(tmp_path_factory):
    """10,000 samples of 2 x 2 pixels in 8 shards, with indexes where the command is built."""
    from shard_files import write_index, write_shards

    folder = write_shards(tmp_path_factory.mktemp("many"), 10_000, 1250, size=(2, 2), kind="png")
    write_index(folder)
    return folder
