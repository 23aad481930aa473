"""DeepSpeed's ZeRO over the backend yard, beside one rank that sees all batches. Run by torchrun."""

import faulthandler
import os
import warnings

import deepspeed
import torch
import torch.distributed as dist
import trainyard.distributed  # noqa: F401
from rank_processes import run_checks

STEPS = 4
# Without a GPU DeepSpeed compiles a collective of its own for inference on one host, whatever the backend
# is: a minute, and for ever where a build that was killed has left its lock in ~/.cache/torch_extensions.
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


def new_model():
    torch.manual_seed(7)
    return torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.GELU(), torch.nn.Linear(64, 33),
                               torch.nn.LayerNorm(33), torch.nn.Linear(33, 3))


def batch(step, rank):
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(8, 20, generator=generator), torch.randn(8, 3, generator=generator)


def optimizer_of(model):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def single_rank():
    model = new_model()
    optimizer = optimizer_of(model)
    for step in range(STEPS):
        x, y = (torch.cat(parts) for parts in zip(*(batch(step, rank) for rank in range(SIZE))))
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    return model


def zero(stage):
    """The weights, whole, after the same steps under ZeRO."""
    model = new_model()
    engine, *_ = deepspeed.initialize(
        model=model, optimizer=optimizer_of(model), dist_init_required=False,
        config={"train_micro_batch_size_per_gpu": 8, "zero_allow_untested_optimizer": True,
                "zero_force_ds_cpu_optimizer": False, "gradient_clipping": 0.0,
                "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0,
                                      "reduce_bucket_size": 2000, "allgather_bucket_size": 2000}})
    for step in range(STEPS):
        x, y = batch(step, RANK)
        engine.backward(torch.nn.functional.mse_loss(engine(x), y))
        engine.step()
    with deepspeed.zero.GatheredParameters(list(model.parameters()), enabled=stage == 3):
        return [p.detach().clone() for p in model.parameters()]


def close(stage):
    for ours, theirs in zip(zero(stage), single_rank().parameters()):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def check_zero_1():
    close(1)


def check_zero_2():
    close(2)


def check_zero_3():
    close(3)


def check_backend():
    assert dist.get_backend() == "yard"


warnings.filterwarnings("ignore")
faulthandler.dump_traceback_later(90, exit=True)  # says where a rank hangs
deepspeed.init_distributed("yard")
RANK, SIZE = dist.get_rank(), dist.get_world_size()
os.environ.setdefault("LOCAL_SIZE", str(SIZE))
run_checks(globals())
dist.destroy_process_group()
