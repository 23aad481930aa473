"""Every operation of the backend yard beside Gloo's, on the same inputs, in three processes."""

import gc
import itertools
import os
import sys
import time
import warnings

import torch
import torch.distributed as dist
import trainyard.distributed  # noqa: F401
from rank_processes import free_port, run_checks, run_ranks

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
WHOLES = (torch.uint8, torch.int8, torch.int32, torch.int64)
SHAPES = ((), (1,), (0,), (7,), (3, 5), (1031,), (17, 64, 9))
ORDERED = (dist.ReduceOp.SUM, dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN, dist.ReduceOp.MAX)
BITS = (dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR)


def value(shape, dtype, salt, rank=None):
    """Small whole numbers: every order of additions gives the same."""
    generator = torch.Generator().manual_seed(1000 * salt + (dist.get_rank() if rank is None else rank))
    return torch.randint(0 if dtype == torch.uint8 else -3, 4, shape, generator=generator).to(dtype)


def layouts(tensor):
    """The tensor as it is, and the same values in memory of another order."""
    yield tensor.clone()
    if tensor.dim() >= 2:
        yield tensor.transpose(0, 1).contiguous().transpose(0, 1)
        wide = tensor.new_zeros((*tensor.shape[:-1], 2 * tensor.shape[-1]))
        wide[..., ::2] = tensor
        yield wide[..., ::2]


def same(ours, theirs, what):
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0, msg=lambda text: f"{what}: {text}")


def both(operation, tensors, what):
    """operation(tensors, group) on copies, by each backend."""
    for ours in itertools.product(*map(layouts, tensors)):
        theirs = [tensor.contiguous().clone() for tensor in tensors]
        operation(list(ours), YARD)
        operation(theirs, GLOO)
        same(ours, theirs, what)
        if len(tensors) > 2:
            break


def check_reductions():
    for shape, dtype in [(shape, torch.float32) for shape in SHAPES] + [((3, 5), dtype) for dtype in FLOATS + WHOLES]:
        for op in (ORDERED if shape == (3, 5) else ORDERED[:1]) + (BITS if dtype in WHOLES else ()):
            x = value(shape, dtype, 1)
            both(lambda t, g: dist.all_reduce(t[0], op, group=g), [x], f"all_reduce {op} {dtype} {shape}")
            for ours in layouts(x):
                dist.reduce(ours, 1, op, group=YARD)
                expected = x.clone()
                dist.all_reduce(expected, op, group=GLOO)
                same([ours], [expected if RANK == 1 else x], f"reduce {op} {dtype} {shape}")
            inputs = [value(shape, dtype, 2 + i) for i in range(SIZE)]
            for out in layouts(torch.zeros(shape, dtype=dtype)):
                dist.reduce_scatter(out, [t.clone() for t in inputs], op, group=YARD)
                expected = inputs[RANK].clone()
                for i, one in enumerate(inputs):
                    one = one.clone()
                    dist.all_reduce(one, op, group=GLOO)
                    expected = one if i == RANK else expected
                same([out], [expected], f"reduce_scatter {op} {dtype} {shape}")
    x = value((100,), torch.complex64, 3) * (1 + 2j)
    both(lambda t, g: dist.all_reduce(t[0], group=g), [x], "all_reduce complex")


def check_what_gloo_has_not():
    truth = torch.tensor([RANK == 1, True, False, RANK > 0])
    for op, expected in ((dist.ReduceOp.SUM, [SIZE > 1, True, False, SIZE > 1]),
                         (dist.ReduceOp.PRODUCT, [False, True, False, False])):
        x = truth.clone()
        dist.all_reduce(x, op)
        assert x.tolist() == expected and x.view(torch.uint8).max() == 1, (op, x)
    x = torch.full((10,), float(RANK))
    dist.all_reduce(x, dist.ReduceOp.AVG)
    assert x.eq((SIZE - 1) / 2).all()
    x = torch.full((10,), float(RANK + 1))
    dist.all_reduce(x, dist._make_nccl_premul_sum(0.5))
    assert x.eq(SIZE * (SIZE + 1) / 4).all()
    x = torch.full((5,), 1 + 2j, dtype=torch.complex128)
    dist.all_reduce(x, dist.ReduceOp.AVG)
    assert x.eq(1 + 2j).all()
    x = torch.full((3,), 2**31, dtype=torch.uint32)
    dist.all_reduce(x)
    assert x.tolist() == [(SIZE * 2**31) % 2**32] * 3
    for x, op in ((torch.ones(3), dist.ReduceOp.BAND), (torch.ones(3).bool(), dist.ReduceOp.AVG)):
        try:
            dist.all_reduce(x, op)
            raise AssertionError("not refused")
        except NotImplementedError as error:
            assert "cannot be reduced" in str(error), error
    # Tensors of different sizes.
    sizes = [3, 0, 5, 1][:SIZE]
    out = [torch.zeros(n, dtype=torch.int64) for n in sizes]
    dist.all_gather(out, torch.arange(sizes[RANK]) + 10 * RANK)
    assert [t.tolist() for t in out] == [[10 * r + i for i in range(n)] for r, n in enumerate(sizes)], out
    mine = torch.zeros(sizes[RANK])
    dist.reduce_scatter(mine, [torch.full((n,), float(r)) for r, n in enumerate(sizes)])
    assert mine.eq(RANK * SIZE).all()


def check_moves():
    types = (torch.float64, torch.bfloat16, torch.bool, torch.int64)
    for shape, dtype in [(shape, torch.float32) for shape in SHAPES] + [((3, 5), dtype) for dtype in types]:
        what = f"{dtype} {shape}"
        x = value(shape, dtype, 4)
        for root in range(SIZE):
            both(lambda t, g: dist.broadcast(t[0], root, group=g), [x], f"broadcast {what}")

        def gather_all(t, g):
            dist.all_gather(t[1:], t[0], group=g)

        both(gather_all, [x, *(torch.zeros_like(x) for _ in range(SIZE))], f"all_gather {what}")
        flat = [torch.zeros((SIZE, *shape), dtype=dtype) for _ in range(2)]
        dist.all_gather_into_tensor(flat[0], x.unsqueeze(0).contiguous(), group=YARD)
        dist.all_gather_into_tensor(flat[1], x.unsqueeze(0).contiguous(), group=GLOO)
        same(flat[:1], flat[1:], f"all_gather_into_tensor {what}")
        for root in range(SIZE):
            lists = [[torch.zeros_like(x) for _ in range(SIZE)] if RANK == root else None for _ in range(2)]
            for group, gathered in zip((YARD, GLOO), lists):
                dist.gather(x, gathered, root, group=group)
            same(lists[0] or [], lists[1] or [], f"gather {what}")
            parts = [value(shape, dtype, 5 + i) for i in range(SIZE)] if RANK == root else None
            outs = [torch.zeros_like(x), torch.zeros_like(x)]
            for group, out in zip((YARD, GLOO), outs):
                dist.scatter(out, parts, root, group=group)
            same(outs[:1], outs[1:], f"scatter {what}")


def check_all_to_all():
    # Rank i sends i + j rows to rank j.
    sent, received = [RANK + j for j in range(SIZE)], [RANK + j for j in range(SIZE)]
    for dtype in (torch.float32, torch.int64):
        x = value((sum(sent), 3), dtype, 6)
        outs = [torch.zeros((sum(received), 3), dtype=dtype) for _ in range(2)]
        for group, out in zip((YARD, GLOO), outs):
            dist.all_to_all_single(out, x, received, sent, group=group)
        same(outs[:1], outs[1:], "all_to_all_single with sizes")
        x = value((2 * SIZE, 5), dtype, 7)
        outs = [torch.zeros_like(x) for _ in range(2)]
        for group, out in zip((YARD, GLOO), outs):
            dist.all_to_all_single(out, x, group=group)
        same(outs[:1], outs[1:], "all_to_all_single")
        ins = [value((RANK + j, 2), dtype, 8) for j in range(SIZE)]
        ours = [torch.zeros((RANK + j, 2), dtype=dtype) for j in range(SIZE)]
        dist.all_to_all(ours, ins, group=YARD)
        same(ours, [value((RANK + j, 2), dtype, 8, rank=j) for j in range(SIZE)], "all_to_all")


def check_messages():
    right, left = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    for shape in ((0,), (1,), (300_000,)):
        out, got = value(shape, torch.float32, 9), torch.zeros(shape)
        requests = dist.batch_isend_irecv([dist.P2POp(dist.irecv, got, left), dist.P2POp(dist.isend, out, right)])
        for request in requests:
            request.wait()
        same([got], [value(shape, torch.float32, 9, rank=left)], "batch_isend_irecv")
    # Tags keep messages apart; those of one tag stay in order.
    sends = [dist.isend(torch.tensor([float(i)]), right, tag=i % 2) for i in range(6)]
    odd = [torch.zeros(1) for _ in range(3)]
    even = [torch.zeros(1) for _ in range(3)]
    receives = [dist.irecv(t, left, tag=1) for t in odd] + [dist.irecv(t, left, tag=0) for t in even]
    for work in sends + receives:
        work.wait()
    assert [t.item() for t in odd] == [1, 3, 5] and [t.item() for t in even] == [0, 2, 4]
    strided = torch.zeros(4, 3).t()
    if RANK == 0:
        seen = set()
        for _ in range(SIZE - 1):
            source = dist.recv(strided)
            assert strided.eq(source).all()
            seen.add(source)
        assert seen == set(range(1, SIZE))
    else:
        dist.send(torch.full((3, 4), float(RANK)), 0)


def check_asynchronous():
    xs = [torch.full((1000,), float(RANK + i)) for i in range(20)]
    works = [dist.all_reduce(x, async_op=True) for x in xs]
    futures = [work.get_future().then(lambda f: f.value()[0].sum().item()) for work in works[:10]]
    for i, future in enumerate(futures):
        assert future.wait() == 1000 * sum(r + i for r in range(SIZE))
    for i, (work, x) in enumerate(zip(works, xs)):
        work.wait()
        assert work.is_completed() and x.eq(sum(r + i for r in range(SIZE))).all()
    with dist._coalescing_manager(async_ops=True) as together:
        for x in xs:
            dist.all_reduce(x)
    together.wait()
    assert xs[3][0] == SIZE * sum(r + 3 for r in range(SIZE))
    outs = [torch.zeros(2 * SIZE) for _ in range(3)]
    with dist._coalescing_manager():
        for i, out in enumerate(outs):
            dist.all_gather_into_tensor(out, torch.full((2,), float(RANK + i)))
    assert outs[2].tolist() == [float(r + 2) for r in range(SIZE) for _ in range(2)]
    ins = [torch.arange(2.0 * SIZE) + i for i in range(3)]
    parts = [torch.zeros(2) for _ in range(3)]
    with dist._coalescing_manager():
        for part, x in zip(parts, ins):
            dist.reduce_scatter_tensor(part, x)
    assert parts[1].tolist() == [SIZE * (2 * RANK + 1.0), SIZE * (2 * RANK + 2.0)]
    dist.barrier()
    dist.barrier(async_op=True).wait()


def check_objects():
    mine = {"rank": RANK, "text": "x" * (10 ** RANK)}
    gathered = [None] * SIZE
    dist.all_gather_object(gathered, mine)
    assert [g["rank"] for g in gathered] == list(range(SIZE)) and len(gathered[-1]["text"]) == 10 ** (SIZE - 1)
    box = [mine, RANK]
    dist.broadcast_object_list(box, src=1)
    assert box[0]["rank"] == 1 and box[1] == 1
    collected = [None] * SIZE if RANK == 0 else None
    dist.gather_object(mine, collected, dst=0)
    assert RANK != 0 or collected == gathered
    out = [None]
    dist.scatter_object_list(out, gathered if RANK == 1 else None, src=1)
    assert out[0] == mine
    if RANK == 0:
        dist.send_object_list([mine, "second"], dst=1)
    elif RANK == 1:
        got = [None, None]
        dist.recv_object_list(got, src=0)
        assert got == [gathered[0], "second"]


def check_functional_and_sparse():
    import torch.distributed._functional_collectives as functional

    assert functional.all_reduce(torch.ones(4), "sum", dist.group.WORLD).eq(SIZE).all()
    gathered = functional.all_gather_tensor(torch.full((2,), float(RANK)), 0, dist.group.WORLD)
    assert gathered.tolist() == [float(r) for r in range(SIZE) for _ in range(2)]
    sparse = torch.sparse_coo_tensor([[RANK, 4]], [[1.0, 2.0], [3.0, 4.0]], (5, 2))
    dist.all_reduce(sparse)
    expected = torch.zeros(5, 2)
    expected[4] = SIZE * torch.tensor([3.0, 4.0])
    expected[:SIZE] += torch.tensor([1.0, 2.0])
    assert sparse.to_dense().equal(expected)


def check_groups():
    pair = dist.new_group([0, SIZE - 1])
    alone = [dist.new_group([r]) for r in range(SIZE)][RANK]
    x = torch.tensor([float(RANK)])
    dist.all_reduce(x, group=alone)
    assert x.item() == RANK
    if RANK in (0, SIZE - 1):
        dist.all_reduce(x, group=pair)
        assert x.item() == SIZE - 1
        assert dist.get_process_group_ranks(pair) == [0, SIZE - 1] and dist.get_backend(pair) == "yard"
    mesh = dist.init_device_mesh("cpu", (1, SIZE), mesh_dim_names=("replicate", "shard"))
    x = torch.ones(3)
    dist.all_reduce(x, group=mesh["shard"].get_group())
    assert x.eq(SIZE).all()
    trainyard.distributed.monitored_barrier()
    assert dist.get_backend() == "yard"
    dist.destroy_process_group(pair if RANK in (0, SIZE - 1) else dist.GroupMember.NON_GROUP_MEMBER)
    dist.barrier()


def check_flight_recorder():
    dist.all_reduce(torch.ones(1024))
    last = trainyard.distributed.flight()[-1]
    assert "all_reduce" in last["call"] and "4096 bytes" in last["call"], last
    assert last["ended_after_us"] >= last["started_after_us"] >= 0 and last["error"] == "", last
    assert abs(last["issued_unix_us"] / 1e6 - time.time()) < 3600
    try:
        trainyard.distributed.flight(GLOO)
        raise AssertionError("not refused")
    except ValueError as error:
        assert "is gloo, not yard" in str(error)


def check_nothing_is_left():
    """Of threads and descriptors, after groups came and went."""
    def count(kind):
        return len(os.listdir(f"/proc/self/{kind}"))

    before = None
    for _ in range(4):
        group = dist.new_group(list(range(SIZE)))
        x = torch.ones(1000)
        dist.all_reduce(x, group=group, async_op=True).get_future().wait()
        dist.destroy_process_group(group)
        del group
        gc.collect()
        after = (count("task"), count("fd"))
        before = before or after
        assert after[0] <= before[0] and after[1] <= before[1], (before, after)


def main(rank):
    global RANK, SIZE, YARD, GLOO
    warnings.filterwarnings("ignore")  # torch's new names of old operations
    dist.init_process_group("yard")
    RANK, SIZE = rank, dist.get_world_size()
    YARD, GLOO = dist.group.WORLD, dist.new_group(backend="gloo")
    run_checks(globals())
    dist.destroy_process_group()


sys.exit(run_ranks(3, main, free_port()))
