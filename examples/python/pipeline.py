"""A small GPT as a pipeline: torch.distributed.pipelining over gradwire, with the fastest schedule
that a search finds for the times of its stages and the network.

    python -m gradwire run -n 4 python examples/python/pipeline.py

The model learns to continue sequences of numbers modulo 32, each with a different step.
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage

import gradwire  # noqa: F401: registers the backend
from gradwire.pipeline import Costs, Schedule

WORDS = 32
LENGTH = 24
SAMPLES = 64


class Words(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.places = nn.Embedding(LENGTH, width)

    def forward(self, text):
        return self.words(text) + self.places(torch.arange(text.shape[1]))


class Block(nn.Module):
    def __init__(self, width, heads=4):
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


def module_of(stage, stages, width):
    """Each stage has a block, the first one the embeddings, and the last one the logits too."""
    torch.manual_seed(stage)
    layers = [Words(width)] * (stage == 0) + [Block(width)]
    layers += [nn.Linear(width, WORDS)] * (stage == stages - 1)
    return nn.Sequential(*layers)


def loss_of(logits, text):
    return nn.functional.cross_entropy(logits.flatten(0, 1), text.flatten())


def batch(generator):
    start = torch.randint(0, WORDS, (SAMPLES, 1), generator=generator)
    step = torch.randint(1, 6, (SAMPLES, 1), generator=generator)
    text = (start + step * torch.arange(LENGTH + 1)) % WORDS
    # PyTorch 2.11 refuses inputs with other strides than it has inferred.
    return text[:, :-1].contiguous(), text[:, 1:].contiguous()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--micro-batches", type=int, default=8)
    given = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gradwire")
    rank = dist.get_rank()
    costs = Costs(forward=0.01, backward_input=0.01, backward_weight=0.01, network="1gbe",
                  message_bytes=4 * SAMPLES // given.micro_batches * LENGTH * given.width)
    schedule = Schedule.search(ranks=dist.get_world_size(), micro_batches=given.micro_batches,
                               costs=costs, kept=6)
    if rank == 0:
        print(schedule.draw(costs=costs), flush=True)
    module = module_of(rank, schedule.stages, given.width)
    stage = PipelineStage(module, rank, schedule.stages, torch.device("cpu"))
    runtime = schedule.runtime(stage, loss_of)
    optimizer = torch.optim.AdamW(module.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(0)
    for step in range(given.steps):
        text, target = batch(generator)
        losses = []
        last = {"target": target, "losses": losses} if stage.is_last else {}
        runtime.step(*([text] if stage.is_first else []), **last)
        optimizer.step()
        optimizer.zero_grad()
        if stage.is_last and (step + 1) % 20 == 0:
            print(f"step {step + 1}: loss {torch.stack(losses).mean().item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
