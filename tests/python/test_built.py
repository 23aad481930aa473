"""Whether there is a package to test."""

import pytest
from shard_files import PACKAGE_DIR


def test_the_package_is_built():
    if not any((PACKAGE_DIR / "trainyard").glob("_native*.so")):
        pytest.skip(f"no Python package in {PACKAGE_DIR}: Python's headers or nanobind were missing")
