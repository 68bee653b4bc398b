"""Trains the same model with each codec in turn, and prints the loss and the bytes sent.

    python -m gradwire run -n 4 python examples/python/codec_hooks.py
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import gradwire

CODECS = ["none", "bf16", "int8", "int4", "top_k:0.05", "power_sgd:2"]
STEPS = 60


def data(seed):
    """Random points, labeled by a two-layer network with seed 0."""
    torch.manual_seed(0)
    teacher = nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 8))
    x = torch.randn(64, 64, generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        return x, teacher(x)


def train(codec):
    """Returns (final loss, megabytes that this rank sent, description of the hook)."""
    torch.manual_seed(1)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 512), nn.Tanh(), nn.Linear(512, 8)))
    hook = gradwire.hooks.register(model, codec)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    before = gradwire.backend_of().bytes_sent
    for step in range(STEPS):
        x, y = data(STEPS * dist.get_rank() + step)
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    mean = loss.detach().clone()
    dist.all_reduce(mean, op=dist.ReduceOp.AVG)
    return mean.item(), (gradwire.backend_of().bytes_sent - before) / 1e6, hook.describe()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gradwire")
    for codec in CODECS:
        loss, megabytes, how = train(codec)
        if dist.get_rank() == 0:
            print(f"{codec:<12} loss {loss:.4f}  {megabytes:6.2f} MB sent   {how}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
