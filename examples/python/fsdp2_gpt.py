"""FSDP2 (fully_shard) of a small GPT over gradwire: each rank keeps its shard of the parameters,
gradients and optimizer states, and the ranks gather each block's parameters just in time.

    python -m gradwire run -n 4 python examples/python/fsdp2_gpt.py

The model learns to continue sequences of numbers modulo 32, each with a different step.
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

import gradwire  # noqa: F401: registers the backend

WORDS = 32
LENGTH = 24


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.before_attention = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.before_layers = nn.LayerNorm(width)
        self.layers = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(),
                                    nn.Linear(4 * width, width))

    def forward(self, x):
        later = torch.triu(torch.ones(x.shape[1], x.shape[1], dtype=torch.bool), diagonal=1)
        y = self.before_attention(x)
        x = x + self.attention(y, y, y, attn_mask=later, need_weights=False)[0]
        return x + self.layers(self.before_layers(x))


class Gpt(nn.Module):
    def __init__(self, width, heads, blocks):
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.places = nn.Embedding(LENGTH, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(blocks))
        self.last = nn.Linear(width, WORDS)

    def forward(self, text):
        x = self.words(text) + self.places(torch.arange(text.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.last(x)


def batch(size, generator):
    start = torch.randint(0, WORDS, (size, 1), generator=generator)
    step = torch.randint(1, 6, (size, 1), generator=generator)
    return (start + step * torch.arange(LENGTH + 1)) % WORDS


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--blocks", type=int, default=2)
    given = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gradwire")
    torch.manual_seed(0)
    model = Gpt(given.width, heads=4, blocks=given.blocks)
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(dist.get_rank())
    for step in range(given.steps):
        text = batch(16, generator)
        loss = nn.functional.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        mean = loss.detach().clone()
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        if dist.get_rank() == 0 and (step + 1) % 20 == 0:
            print(f"step {step + 1}: loss {mean.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
