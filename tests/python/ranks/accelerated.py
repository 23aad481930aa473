"""A script for Accelerate in which only the backend is named. Run by torchrun."""

import sys

import torch
import trainyard.distributed  # noqa: F401
from accelerate import Accelerator
from accelerate.utils import InitProcessGroupKwargs

accelerator = Accelerator(cpu=True, kwargs_handlers=[InitProcessGroupKwargs(backend=sys.argv[1])])
torch.manual_seed(1)
model = torch.nn.Linear(6, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.utils.data.DataLoader(torch.arange(240.0).view(40, 6) / 240, batch_size=4)
model, optimizer, data = accelerator.prepare(model, optimizer, data)
for batch in data:
    loss = model(batch).square().mean()
    accelerator.backward(loss)
    accelerator.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
total = accelerator.gather_for_metrics(torch.tensor([accelerator.process_index])).tolist()
weights = accelerator.unwrap_model(model).weight.flatten().tolist()
if accelerator.is_main_process:
    print("DONE", torch.distributed.get_backend(), type(model).__name__, total, weights, flush=True)
accelerator.end_training()
