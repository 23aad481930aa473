"""trainyard.distributed: torch's process groups over our collectives, beside Gloo."""

import ast
import signal
import subprocess
import sys
from datetime import timedelta

import pytest
import torch
from rank_processes import SCRIPTS, run_alone, run_torchrun
from shard_files import PACKAGE_DIR, WAIT_SECONDS, YARD, run_script, script_environment, start_script

pytestmark = pytest.mark.skipif(not any((PACKAGE_DIR / "trainyard").glob("_torch*.so")),
                                reason="the package was built without torch")


def checks_of(script):
    """The names of its checks, which it prints with each rank that has run them."""
    tree = ast.parse((SCRIPTS / script).read_text())
    return [node.name for node in tree.body
            if isinstance(node, ast.FunctionDef) and node.name.startswith("check_")]


def output_of(run, *arguments, **variables):
    """Of a script that runs many checks: each of them is a test that looks for its lines."""
    try:
        return run(*arguments, **variables).splitlines()
    except AssertionError as error:
        return str(error).splitlines()  # the checks that passed are in it too


@pytest.fixture(scope="module", name="flights")
def fixture_flights(tmp_path_factory):
    return tmp_path_factory.mktemp("flights")


@pytest.fixture(scope="module", name="collectives")
def fixture_collectives(flights):
    return output_of(run_alone, "collectives.py", TRAINYARD_FLIGHT_DIR=flights)


@pytest.mark.parametrize("check", checks_of("collectives.py"))
def test_operations_give_what_gloo_gives(collectives, check):
    missing = {f"{check} {rank}" for rank in range(3)} - set(collectives)
    assert not missing, "\n".join(collectives)


def test_flight_recorders_stay_behind(collectives, flights):
    assert collectives
    assert sorted(path.name for path in (flights / "flight").iterdir()) == [f"rank-{r}.flight" for r in range(3)]
    if YARD.exists():
        told = subprocess.run([YARD, "flight", f"{flights}/"], capture_output=True, text=True, timeout=WAIT_SECONDS)
        assert "rank 2 of 3" in told.stdout and "barrier" in told.stdout, told


@pytest.fixture(scope="module", name="training")
def fixture_training(tmp_path_factory):
    return output_of(run_torchrun, "training.py", 2, tmp_path_factory.mktemp("checkpoints"))


@pytest.mark.parametrize("check", checks_of("training.py"))
def test_training_gives_what_gloo_and_a_single_rank_give(training, check):
    missing = {f"{check} {rank}" for rank in range(2)} - set(training)
    assert not missing, "\n".join(training)


def test_zero_of_deepspeed_gives_what_a_single_rank_gives():
    pytest.importorskip("deepspeed", reason="DeepSpeed is not installed: docs/distributed.md says how")
    done = set(run_torchrun("zero_of_deepspeed.py", 2).splitlines())
    assert {f"{check} {rank}" for check in checks_of("zero_of_deepspeed.py") for rank in range(2)} <= done


@pytest.fixture(scope="module", name="failures")
def fixture_failures():
    return output_of(run_alone, "failures.py")


@pytest.mark.parametrize("case", [
    "killed_in_all_reduce", "killed_in_backward", "killed_while_a_message_is_awaited", "rebuilt", "shrunk", "mismatched",
    "timed_out", "monitored", "absent", "two_hosts", "hosts_under_tls",
])
def test_failures_are_errors_on_all_that_live(failures, case):
    assert f"{case} ok" in failures, "\n".join(failures)


def weights_of(backend):
    out = run_torchrun("accelerated.py", 2, backend)
    _, used, model, total, weights = out[out.index("DONE"):].split(" ", 4)
    assert used == backend and model == "DistributedDataParallel" and total == "[0," and weights.startswith("1] ")
    return weights


def test_accelerate_takes_the_backend_that_its_script_names():
    pytest.importorskip("accelerate")
    assert weights_of("yard") == weights_of("gloo")


def test_an_accelerate_that_was_imported_before_takes_it_too(monkeypatch):
    state = pytest.importorskip("accelerate.state")
    import trainyard.distributed  # noqa: F401

    monkeypatch.setenv("LOCAL_RANK", "0")
    choose = state.PartialState._prepare_backend
    assert choose(None, cpu=True, backend="yard") == ("yard", state.DistributedType.MULTI_CPU)
    assert choose(None, cpu=True, backend="cpu:yard,cuda:gloo")[0] == "cpu:yard,cuda:gloo"
    for other in ("gloo", "nccl", "ward", None):
        assert choose(None, cpu=True, backend=other)[0] == "gloo"


def test_a_rank_that_ends_without_a_goodbye_ends_cleanly():
    script = "import torch.distributed as d, trainyard.distributed, torch, sys\n" \
             "d.init_process_group('yard', store=d.HashStore(), rank=0, world_size=1)\n" \
             "x = torch.ones(3); d.all_reduce(x, async_op=True).get_future().then(lambda f: print('end', x.sum()))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=WAIT_SECONDS,
                          env=script_environment())
    assert done.returncode == 0 and "end tensor(3.)" in done.stdout, done.stderr


def test_the_address_is_that_by_which_others_reach_us(monkeypatch):
    from trainyard.distributed.address import own_address

    store = torch.distributed.HashStore()
    monkeypatch.setenv("TRAINYARD_INTERFACE", "lo")
    assert own_address(store) == "127.0.0.1"
    monkeypatch.setenv("TRAINYARD_INTERFACE", "no-such-one")
    with pytest.raises(ValueError, match="no-such-one"):
        own_address(store)
    monkeypatch.setenv("TRAINYARD_ADDRESS", "192.0.2.7")
    assert own_address(store) == "192.0.2.7"
    monkeypatch.delenv("TRAINYARD_ADDRESS")
    monkeypatch.delenv("TRAINYARD_INTERFACE")
    server = torch.distributed.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    assert own_address(torch.distributed.PrefixStore("a", server)) == "127.0.0.1"


def test_pg_options_are_refused():
    run_script("""
        import torch.distributed as dist, trainyard.distributed
        try:
            dist.init_process_group("yard", store=dist.HashStore(), rank=0, world_size=1, pg_options=object())
        except ValueError as error:
            assert "pg_options" in str(error)
        assert not dist.is_initialized()
    """)


def test_ctrl_c_ends_the_wait_for_other_ranks():
    server = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    process = start_script("""
        import sys, torch.distributed as dist, trainyard.distributed
        store = dist.TCPStore("127.0.0.1", int(sys.argv[1]), is_master=False)
        dist.init_process_group("yard", store=store, rank=0, world_size=2)
    """, server.port)
    of_group = torch.distributed.PrefixStore("cpu/", torch.distributed.PrefixStore("0/", server))
    of_group.wait(["yard/rank0"], timedelta(seconds=WAIT_SECONDS))  # it is waiting for rank 1
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=WAIT_SECONDS)
    assert process.returncode != 0 and err.rstrip().endswith("KeyboardInterrupt"), err
