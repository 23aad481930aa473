"""Which shards a URL means, and which part of them is ours."""

import os

import braceexpand
import pytest
import trainyard
from trainyard.data import expand, urls, world


@pytest.mark.parametrize("pattern", [
    "a.tar", "s-{000000..000012}.tar", "{a,b}/x-{1..3}.tar", "s-{08..11}.tar", "s-{5..1}.tar",
    "s-{0..10..5}.tar", "{x,{y,z}}.tar", "s-{-1..1}.tar",
])
def test_braces_are_those_of_webdataset(pattern):
    assert urls.braces(pattern) == list(braceexpand.braceexpand(pattern))


def test_paths_globs_and_folders(tmp_path, monkeypatch):
    for name in ("b.tar", "a.tar", "a.tar.idx", "c.txt", "d{1}.tar"):
        (tmp_path / name).touch()
    a, b, d = (str(tmp_path / name) for name in ("a.tar", "b.tar", "d{1}.tar"))
    assert expand(tmp_path) == [a, b, d]
    assert expand(f"{tmp_path}/*") == [a, b, str(tmp_path / "c.txt"), d]
    assert expand([f"file://{a}", tmp_path / "b.tar", d]) == [a, b, d]
    monkeypatch.chdir(tmp_path)
    assert expand("{b,a}.tar") == [b, a]


@pytest.mark.parametrize("url,error,words", [
    ("pipe:curl x", trainyard.InvalidArgument, "s3://"),
    ("https://host/a.tar", trainyard.InvalidArgument, "paths and s3://"),
    ("{a}.tar", trainyard.InvalidArgument, "no range"),
    ("s-{0..99999999999}.tar", trainyard.InvalidArgument, "too long"),
    ([], trainyard.InvalidArgument, "no shards"),
    ({}, trainyard.InvalidArgument, "no shards"),
    ("/nowhere/*.tar", trainyard.NotFound, "/nowhere"),
])
def test_what_names_no_shards_is_refused(url, error, words):
    with pytest.raises(error, match=words):
        urls.sources(url)


@pytest.mark.parametrize("env,expected", [
    ({}, (0, 1)),
    ({"RANK": "3", "WORLD_SIZE": "8"}, (3, 8)),
    ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, (1, 2)),
    ({"SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "4"}, (2, 4)),
    ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, (0, 1)),  # a batch script is one process
    ({"SM_HOSTS": '["algo-2", "algo-1"]', "SM_CURRENT_HOST": "algo-2"}, (1, 2)),
])
def test_the_rank_is_that_of_the_launcher(env, expected):
    assert world._of_environment(env) == expected


def test_a_world_without_a_rank_is_an_error():
    with pytest.raises(trainyard.InvalidArgument, match="RANK"):
        world._of_environment({"WORLD_SIZE": "2", "LOCAL_RANK": "0"})
    with pytest.raises(trainyard.InvalidArgument, match="go together"):
        world.rank_and_world_size(1, None)


def test_threads_are_a_share_of_the_cpus(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(32)))
    monkeypatch.delenv("SLURM_TASKS_PER_NODE", raising=False)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert world.thread_count(1) == 8 and world.thread_count(2) == 4 and world.thread_count(100) == 1
