"""DistributedDataParallel over gradwire: a small network learns ten classes of synthetic images, so
that nothing has to be downloaded.

    python -m gradwire run -n 4 python examples/python/ddp_fashion.py
    torchrun --nproc-per-node 4 examples/python/ddp_fashion.py --codec int8

The two lines specific to gradwire are marked.
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import gradwire  # <- registers the backend


def images(count, seed):
    """Returns `count` images of 28 x 28, noise around one of ten patterns, with their labels."""
    patterns = torch.rand(10, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(seed)
    kinds = torch.randint(0, 10, (count,), generator=generator)
    noise = torch.randn(count, 1, 28, 28, generator=generator)
    return TensorDataset(patterns[kinds] + noise, kinds)


def network():
    return nn.Sequential(nn.Conv2d(1, 16, 5, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 5, stride=2),
                         nn.ReLU(), nn.Flatten(), nn.Linear(32 * 4 * 4, 10))


def accuracy(model, data):
    """Returns the accuracy over all ranks' shares of the data."""
    x, y = data[dist.get_rank()::dist.get_world_size()]
    with torch.no_grad():
        right = torch.tensor([(model(x).argmax(1) == y).sum(), len(y)], dtype=torch.int64)
    dist.all_reduce(right)
    return (right[0] / right[1]).item()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--images", type=int, default=4000)
    parser.add_argument("--codec", default="none", help="gradient compression: int8, ...")
    given = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gradwire")  # <- was "gloo"
    torch.manual_seed(0)
    model = DistributedDataParallel(network())
    if given.codec != "none":
        gradwire.hooks.register(model, given.codec)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    data = images(given.images, seed=1)
    sampler = DistributedSampler(data)
    for epoch in range(given.epochs):
        sampler.set_epoch(epoch)
        for x, y in DataLoader(data, batch_size=50, sampler=sampler):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        reached = accuracy(model.module, images(1000, seed=2))
        if dist.get_rank() == 0:
            print(f"epoch {epoch + 1}: accuracy {100 * reached:.1f} %, "
                  f"{gradwire.backend_of().bytes_sent / 1e6:.1f} MB sent by rank 0", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
