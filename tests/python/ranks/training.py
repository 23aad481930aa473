"""What users build on process groups, over the backend yard: DDP, FSDP, checkpoints. Run by torchrun."""

import os
import sys
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import trainyard.distributed  # noqa: F401
from rank_processes import run_checks
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

STEPS = 5


def new_model():
    torch.manual_seed(7)
    return torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.GELU(), torch.nn.Linear(64, 33),
                               torch.nn.LayerNorm(33), torch.nn.Linear(33, 3))


def batch(step, rank):
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(8, 20, generator=generator), torch.randn(8, 3, generator=generator)


def train(model, optimizer, batches):
    for x, y in batches:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()


def own_batches():
    return [batch(step, RANK) for step in range(STEPS)]


def single_rank():
    """The weights of one rank that sees all batches."""
    model = new_model()
    whole = [[batch(step, rank) for rank in range(SIZE)] for step in range(STEPS)]
    train(model, torch.optim.AdamW(model.parameters(), lr=1e-2),
          [(torch.cat([x for x, _ in b]), torch.cat([y for _, y in b])) for b in whole])
    return model.state_dict()


def ddp(group, hook=None, **options):
    model = DistributedDataParallel(new_model(), process_group=group, **options)
    if hook is not None:
        model.register_comm_hook(None, hook)
    train(model, torch.optim.AdamW(model.parameters(), lr=1e-2), own_batches())
    return model.module.state_dict()


def close(ours, theirs, tolerance=1e-6):
    for name, value in theirs.items():
        torch.testing.assert_close(ours[name], value, rtol=tolerance, atol=tolerance, msg=lambda t: f"{name}: {t}")


def check_ddp():
    ours = ddp(YARD, bucket_cap_mb=0.004)
    theirs = ddp(GLOO, bucket_cap_mb=0.004)
    if SIZE == 2:  # two addends have one order
        assert all(ours[name].equal(theirs[name]) for name in theirs)
    close(ours, theirs)
    close(ours, single_rank())
    close(ddp(YARD, static_graph=True), theirs)
    close(ddp(YARD, gradient_as_bucket_view=True), theirs)


def memory_of(tensor):
    """The name of the mapping that it lies in."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            begin, end = (int(address, 16) for address in line.split()[0].split("-"))
            if begin <= tensor.data_ptr() < end:
                return line.split(maxsplit=5)[5].strip() if len(line.split()) > 5 else ""
    return None


def check_ddp_buckets_are_shared_memory():
    model = DistributedDataParallel(new_model(), process_group=YARD, gradient_as_bucket_view=True)
    for step in range(2):  # the buckets are made anew after the first step
        model(batch(step, RANK)[0]).sum().backward()
        assert all("memfd" in memory_of(p.grad) for p in model.parameters())
    assert "memfd" not in memory_of(model.module[0].weight)


def check_comm_hooks():
    close(ddp(YARD, default_hooks.allreduce_hook), ddp(GLOO))
    close(ddp(YARD, default_hooks.fp16_compress_hook), ddp(GLOO, default_hooks.fp16_compress_hook), 2e-2)
    close(ddp(YARD, trainyard.distributed.compress_to_bf16), ddp(GLOO), 5e-2)
    own = []

    def hook(state, bucket):
        own.append(bucket.index())
        return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda f: f.value()[0] / SIZE)

    close(ddp(YARD, hook), ddp(GLOO))
    assert own


def check_no_sync_and_sync_batch_norm():
    model = DistributedDataParallel(new_model(), process_group=YARD)
    with model.no_sync():
        model(batch(0, RANK)[0]).sum().backward()
    model(batch(1, RANK)[0]).sum().backward()
    grad = model.module[0].weight.grad
    other = grad.clone()
    dist.broadcast(other, 0)
    assert grad.equal(other)


def sharded(precision=None, mesh=None):
    model = new_model()
    for layer in model:
        if list(layer.parameters()):
            fully_shard(layer, mesh=mesh, **({"mp_policy": precision} if precision else {}))
    fully_shard(model, mesh=mesh)
    return model


def full(model):
    return {name: value.full_tensor() if isinstance(value, DTensor) else value
            for name, value in model.state_dict().items()}


def check_fsdp2():
    model = sharded()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    train(model, optimizer, own_batches())
    close(full(model), single_rank())
    bf16 = sharded(MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))
    train(bf16, torch.optim.AdamW(bf16.parameters(), lr=1e-2), own_batches())
    assert all(value.isfinite().all() for value in full(bf16).values())


def check_fsdp2_hybrid():
    mesh = dist.init_device_mesh("cpu", (SIZE, 1), mesh_dim_names=("replicate", "shard"))
    model = sharded(mesh=mesh)
    train(model, torch.optim.AdamW(model.parameters(), lr=1e-2), own_batches())
    close(full(model), single_rank())


def check_fsdp1():
    options = {"process_group": YARD, "device_id": torch.device("cpu"), "use_orig_params": True}
    model = FullyShardedDataParallel(new_model(), **options)
    train(model, torch.optim.AdamW(model.parameters(), lr=1e-2), own_batches())
    with FullyShardedDataParallel.summon_full_params(model):
        close({name.replace("_fsdp_wrapped_module.", ""): p.detach().clone() for name, p in model.named_parameters()},
              single_rank())


def check_dtensor():
    mesh = dist.init_device_mesh("cpu", (SIZE,))
    torch.manual_seed(3)
    a, b = torch.randn(7, 10), torch.randn(10, 5)
    product = distribute_tensor(a, mesh, [Shard(1)]) @ distribute_tensor(b, mesh, [Shard(0)])
    torch.testing.assert_close(product.full_tensor(), a @ b)
    torch.testing.assert_close(distribute_tensor(a, mesh, [Shard(0)]).redistribute(mesh, [Shard(1)]).full_tensor(), a)


def check_checkpoint():
    model = sharded()
    train(model, torch.optim.AdamW(model.parameters(), lr=1e-2), own_batches())
    expected = full(model)
    for name, save in (("now", dcp.save), ("later", lambda *a, **k: dcp.async_save(*a, **k).result())):
        path = os.path.join(sys.argv[1], name)
        save({"model": get_model_state_dict(model)}, checkpoint_id=path)
        again = sharded()
        state = {"model": get_model_state_dict(again)}
        dcp.load(state, checkpoint_id=path)
        set_model_state_dict(again, state["model"])
        loaded = full(again)
        assert all(loaded[key].equal(value) for key, value in expected.items())


warnings.filterwarnings("ignore")
dist.init_process_group("cpu:yard" if len(sys.argv) > 2 else "yard")
RANK, SIZE = dist.get_rank(), dist.get_world_size()
YARD, GLOO = dist.group.WORLD, dist.new_group(backend="gloo")
run_checks(globals())
dist.destroy_process_group()
