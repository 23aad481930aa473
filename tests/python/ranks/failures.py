"""Ranks that die, disagree, come again or sit on two hosts, each case in processes of its own: failures.py CASE..."""

import os
import signal
import sys
import tempfile
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import trainyard.distributed
from rank_processes import free_port, run_ranks
from torch.nn.parallel import DistributedDataParallel


def expect_failure(call, *words):
    """DistBackendError with these words; how long the call took."""
    begin = time.monotonic()
    try:
        call()
    except dist.DistBackendError as error:
        for word in words:
            assert word in str(error), f"{word!r} is not in: {error}"
        return time.monotonic() - begin
    raise AssertionError("nothing failed")


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def host():
    return os.uname().nodename


def killed_in_all_reduce(rank):
    dist.init_process_group("yard")
    x = torch.ones(1000)
    dist.all_reduce(x)
    if rank == 1:
        die()
    expect_failure(lambda: dist.all_reduce(x), f"rank 1 (on {host()}) died")
    expect_failure(dist.barrier, "rank 1")  # for good
    work_of_later = lambda: dist.all_reduce(x, async_op=True).get_future().wait()  # noqa: E731
    try:
        work_of_later()
        raise AssertionError("nothing failed")
    except RuntimeError as error:
        assert "rank 1" in str(error), error
    dist.destroy_process_group()


class Slow(torch.autograd.Function):
    """Kills rank 2 in the middle of its backward pass."""

    @staticmethod
    def forward(ctx, x, rank):
        ctx.rank = rank
        return x

    @staticmethod
    def backward(ctx, grad):
        if ctx.rank == 2:
            die()
        return grad, None


def killed_in_backward(rank):
    dist.init_process_group("yard")
    first, second = torch.nn.Linear(50, 50), torch.nn.Linear(50, 50)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = first, second

        def forward(self, x):
            return self.second(Slow.apply(self.first(x), dist.get_rank()))

    model = DistributedDataParallel(Model(), bucket_cap_mb=0.005)
    loss = model(torch.randn(4, 50)).sum()
    expect_failure(loss.backward, f"rank 2 (on {host()}) died")
    dist.destroy_process_group()


def killed_while_a_message_is_awaited(rank):
    dist.init_process_group("yard")
    dist.barrier()
    if rank == 0:
        die()
    expect_failure(lambda: dist.recv(torch.ones(3), src=0), "rank 0")
    dist.destroy_process_group()


def rebuilt(rank):
    """Three ranks, one is killed, the others go on as two, then as two again, in the same processes and with the
    same store."""
    store = dist.TCPStore("127.0.0.1", STORE_PORT, is_master=rank == 0, wait_for_workers=False)
    dist.init_process_group("yard", store=store, rank=rank, world_size=3)
    dist.all_reduce(torch.ones(10))
    dist.new_group([0, 2])
    if rank == 1:
        die()
    expect_failure(lambda: dist.all_reduce(torch.ones(10)), "rank 1")
    dist.destroy_process_group()
    for _ in range(2):
        dist.init_process_group("yard", store=store, rank=rank // 2, world_size=2)
        x = torch.full((10,), float(rank))
        dist.all_reduce(x)
        assert x.eq(2).all()
        group = dist.new_group([0, 1])
        dist.all_reduce(x, group=group)
        assert x.eq(4).all()
        dist.destroy_process_group()


def shrunk(rank):
    """Three ranks; the first, in whose process the store is, is killed. The others go on in the same processes, first
    by our shrink(), then by torch's."""
    dist.init_process_group("yard")
    dist.new_group([0, 1, 2])
    dist.all_reduce(torch.ones(10))
    if rank == 0:
        die()
    expect_failure(lambda: dist.all_reduce(torch.ones(10)), f"rank 0 (on {host()})")
    group = trainyard.distributed.shrink()
    assert group == dist.group.WORLD and (dist.get_rank(), dist.get_world_size()) == (rank - 1, 2)
    x = torch.full((10,), float(rank))
    dist.all_reduce(x)
    assert x.eq(3).all()
    dist.broadcast(x, src=1)
    pair = dist.new_group([1, 0])
    dist.all_reduce(x, group=pair)
    assert x.eq(6).all()
    objects = [None, None]
    dist.all_gather_object(objects, rank)
    assert objects == [1, 2]
    model = DistributedDataParallel(torch.nn.Linear(3, 3))
    model(torch.ones(1, 3) * rank).sum().backward()
    assert model.module.weight.grad.eq(1.5).all()
    trainyard.distributed.monitored_barrier(timeout=timedelta(seconds=60))
    if rank == 1:
        try:
            trainyard.distributed.shrink(without=[0])
            raise AssertionError("a rank left itself out")
        except dist.DistBackendError as error:
            assert "cannot leave out rank 0" in str(error), error
        dist.shrink_group([1])
        assert dist.get_world_size() == 1
        dist.all_reduce(x)
    dist.destroy_process_group()


def mismatched(rank):
    dist.init_process_group("yard")
    calls = ((lambda: dist.all_reduce(torch.ones(100 + rank)), "all_reduce"),
             (lambda: dist.broadcast(torch.ones(4), 0) if rank else dist.barrier(), "barrier"),
             (lambda: dist.all_reduce(torch.ones(4, dtype=torch.float32 if rank else torch.int32)), "i32"),
             (lambda: dist.all_reduce(torch.ones(4), dist.ReduceOp.MAX if rank else dist.ReduceOp.SUM), "max"))
    for call, word in calls:
        group = dist.new_group([0, 1, 2], backend="yard")
        del group
        expect_failure(call, word, "rank 0 (on ", "rank ")
        dist.destroy_process_group()
        dist.init_process_group("yard")
    dist.destroy_process_group()


def timed_out(rank):
    """The rank that was waited for is named, on all."""
    dist.init_process_group("yard", timeout=timedelta(seconds=2))
    pids = [None] * 3
    dist.all_gather_object(pids, os.getpid())
    if rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    expect_failure(dist.barrier, "rank 1")
    if rank == 0:
        os.kill(pids[1], signal.SIGKILL)
    dist.destroy_process_group()


def monitored(rank):
    dist.init_process_group("yard")
    trainyard.distributed.monitored_barrier(timeout=timedelta(seconds=60))
    if rank != 2:
        expect_failure(lambda: trainyard.distributed.monitored_barrier(timeout=timedelta(milliseconds=200)),
                       "rank 2 (on ")
    dist.barrier()
    dist.destroy_process_group()


def absent(rank):
    """A rank that never comes is named by those who did."""
    if rank == 2:
        return
    dist.init_process_group("yard", store=dist.HashStore(), rank=0, world_size=1)  # what torch imports late: now
    dist.destroy_process_group()
    store = dist.TCPStore("127.0.0.1", STORE_PORT, is_master=rank == 0, wait_for_workers=False)
    store.set(f"came/{rank}", "")
    store.wait(["came/0", "came/1"])  # both begin to wait for rank 2 at about one time
    expect_failure(lambda: dist.init_process_group("yard", store=store, rank=rank, world_size=3,
                                                   timeout=timedelta(seconds=5)), "rank 2 did not come")
    if rank == 1:
        store.set("left/1", "")
    else:
        store.wait(["left/1"])  # the store is in this process


def two_hosts(rank):
    """By what they say of themselves: over TCP, f32 exact or at half the size."""
    os.environ["TRAINYARD_HOST_IDENTITY"] = f"host {rank % 2}"
    for wire, least, most in (("exact", 0, 1e-6), ("bf16", 1e-5, 2**-6)):
        os.environ["TRAINYARD_WIRE"] = wire
        dist.init_process_group("yard")
        x = torch.linspace(0.1, 0.2, 4096)
        expected = 3 * x
        dist.all_reduce(x)
        assert least <= (x - expected).abs().max().item() <= most, (wire, x)
        dist.destroy_process_group()
    os.environ["TRAINYARD_WIRE"] = "exact"
    for streams in ("0", "3"):
        os.environ["TRAINYARD_STREAMS"] = streams
        dist.init_process_group("yard")
        x = torch.arange(300_000.0)
        dist.all_reduce(x)
        assert torch.equal(x, 3 * torch.arange(300_000.0))
        dist.destroy_process_group()
    for name, text, word in (("WIRE", "short", "exact or bf16"), ("STREAMS", "17", "1 to 16")):
        os.environ[f"TRAINYARD_{name}"] = text
        try:
            dist.init_process_group("yard", store=dist.HashStore(), rank=0, world_size=1)
            raise AssertionError("not refused")
        except ValueError as error:
            assert word in str(error)
        del os.environ[f"TRAINYARD_{name}"]


def hosts_under_tls(rank):
    os.environ["TRAINYARD_HOST_IDENTITY"] = f"host {rank % 2}"
    with tempfile.NamedTemporaryFile("w") as key:  # mode 0600
        key.write("the secret of all hosts\n")
        key.flush()
        os.environ["TRAINYARD_TLS_KEY_FILE"] = key.name
        dist.init_process_group("yard")
        x = torch.arange(100_000.0)
        dist.all_reduce(x)
        assert torch.equal(x, 3 * torch.arange(100_000.0))
        dist.destroy_process_group()
        os.chmod(key.name, 0o644)
        try:
            dist.init_process_group("yard", store=dist.HashStore(), rank=0, world_size=2)
            raise AssertionError("not refused")
        except ValueError as error:
            assert "chmod 600" in str(error)


CASES = {
    "killed_in_all_reduce": (killed_in_all_reduce, 1),
    "killed_in_backward": (killed_in_backward, 2),
    "killed_while_a_message_is_awaited": (killed_while_a_message_is_awaited, 0),
    "rebuilt": (rebuilt, 1),
    "shrunk": (shrunk, 0),
    "mismatched": (mismatched, None),
    "timed_out": (timed_out, 1),
    "monitored": (monitored, None),
    "absent": (absent, None),
    "two_hosts": (two_hosts, None),
    "hosts_under_tls": (hosts_under_tls, None),
}
for name in sys.argv[1:] or CASES:
    case, victim = CASES[name]
    STORE_PORT = free_port()
    problem = run_ranks(3, case, free_port(), victim)
    print(problem or f"{name} ok", flush=True)
