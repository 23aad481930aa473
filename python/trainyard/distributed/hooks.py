"""Communication hooks for DistributedDataParallel.register_comm_hook."""

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks


def compress_to_bf16(state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """torch's bf16_compress_hook, which DDP refuses by its name where there is no CUDA: gradients are sent as
    bf16 and added in f32. `state` is the process group, None for the default one."""
    return default_hooks.bf16_compress_hook(state, bucket)
