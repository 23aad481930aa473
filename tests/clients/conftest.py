"""A gateway for the tests of one file, and its client; a file may define its own gateway."""

import pytest
from served import served


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    with served(tmp_path_factory.mktemp("served")) as running:
        yield running


@pytest.fixture(scope="module")
def s3(gateway):
    return gateway.client()


@pytest.fixture
def bucket(s3, request):
    name = request.node.name.replace("_", "-").replace("[", "-").replace("]", "").lower()[:63].strip("-")
    s3.create_bucket(Bucket=name)
    return name
