"""One rank of a peer in bench/zero.py: a GPT trained from Python over Gloo, in torchrun's
environment. Rank 0 prints the result of report() as one line of JSON.

usage: zero_peer.py WAY STEPS      (WAY: ddp, zero_redundancy or fsdp2)
"""

import faulthandler
import json
import os
import pathlib
import resource
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

# zero.py configures gradwire's model with the same values.
WIDTH, LAYERS, HEADS, CONTEXT, BATCH, CHARACTERS = 384, 11, 6, 128, 4, 256
WARM_UP = 2
LIMIT_S = 300


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.after = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        n, t, _ = x.shape
        q, k, v = (part.view(n, t, HEADS, -1).transpose(1, 2)
                   for part in self.qkv(self.before(x)).chunk(3, -1))
        heads = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(heads.transpose(1, 2).reshape(n, t, WIDTH))
        return x + self.down(nn.functional.gelu(self.up(self.after(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.characters, self.places = nn.Embedding(CHARACTERS, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CHARACTERS)

    def forward(self, x):
        return self.head(self.norm(self.blocks(self.characters(x) + self.places.weight)))


def prepare(way, model):
    """Returns the model and its optimizer, distributed over the ranks as `way` says."""
    if way == "fsdp2":
        for block in model.blocks:
            fully_shard(block)
        fully_shard(model)
        return model, torch.optim.Adam(model.parameters())
    model = DistributedDataParallel(model, gradient_as_bucket_view=True)
    if way == "ddp":
        return model, torch.optim.Adam(model.parameters())
    return model, ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam)


def sent_bytes():
    return int(pathlib.Path("/sys/class/net/gw0/statistics/tx_bytes").read_text())


def report(times, sent):
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    figures = [None] * dist.get_world_size()
    dist.all_gather_object(figures, (statistics.median(times), sent / len(times), peak))
    slowest, most, peak = (max(each) for each in zip(*figures))
    return {"step_ms": 1e3 * slowest, "sent_mb": most / 1e6, "peak_mib": peak}


def main():
    way, steps = sys.argv[1], int(sys.argv[2])
    faulthandler.dump_traceback_later(LIMIT_S, exit=True)  # A rank that hangs prints its stack.
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model, optimizer = prepare(way, Gpt())
    times, sent = [], 0
    for step in range(WARM_UP + steps):
        x = torch.randint(CHARACTERS, (BATCH, CONTEXT + 1))
        dist.barrier()
        begin, before = time.monotonic(), sent_bytes()
        optimizer.zero_grad()
        logits = model(x[:, :-1])
        nn.functional.cross_entropy(logits.flatten(0, 1), x[:, 1:].flatten()).backward()
        optimizer.step()
        dist.barrier()
        if step >= WARM_UP:
            times.append(time.monotonic() - begin)
            sent += sent_bytes() - before
    result = report(times, sent)
    if dist.get_rank() == 0:
        print(json.dumps(result), flush=True)
    dist.barrier()
    os._exit(0)  # Destroying DDP's group over Gloo sometimes hangs.


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "gw0")
    main()
