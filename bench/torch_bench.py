"""Collectives over a backend of torch.distributed, gloo or nccl, measured as `gradwire bench`
measures: the time of an iteration is that of the slowest rank, CPU time is the mean over ranks.
Operations in which not every rank receives from every other are preceded by a barrier, which is not
counted. Rank 0 prints {"rows": [...]}.

usage: torch_bench.py BACKEND COLLECTIVE ITERATIONS SECONDS WARMUP BYTES...
(in torchrun's environment; with nccl, each rank has the GPU of its LOCAL_RANK)
ITERATIONS 0: as many as take SECONDS, from 5 to 2000. BYTES is the size of the larger of input and
output, of floats that are summed.
"""

import json
import math
import os
import sys
import time

import torch
import torch.distributed as dist

ROOTED = ("broadcast", "reduce", "gather", "scatter")
PARTED = ("all_gather", "reduce_scatter", "gather", "scatter", "all_to_all")


class Test:
    """The buffers of one size and the operation on them."""

    def __init__(self, name, size, device):
        self.name, self.bytes, self.device = name, size, device
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        size = 0 if name == "barrier" else size
        self.part = size // 4 // self.ranks
        self.total = self.part * self.ranks if name in PARTED else size // 4
        inputs = self.part if name in ("all_gather", "gather") else self.total
        outputs = self.part if name in ("reduce_scatter", "scatter") else self.total
        self.input = torch.zeros(inputs, device=device)
        self.output = torch.zeros(outputs, device=device)

    def run(self):
        getattr(self, self.name)()
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def all_reduce(self):
        dist.all_reduce(self.output)

    def all_gather(self):
        dist.all_gather_into_tensor(self.output, self.input)

    def reduce_scatter(self):
        dist.reduce_scatter_tensor(self.output, self.input)

    def broadcast(self):
        dist.broadcast(self.output, 0)

    def reduce(self):
        dist.reduce(self.output, 0)

    def gather(self):
        parts = list(self.output.split(self.part)) if self.rank == 0 else None
        dist.gather(self.input, parts, 0)

    def scatter(self):
        parts = list(self.input.split(self.part)) if self.rank == 0 else None
        dist.scatter(self.output, parts, 0)

    def all_to_all(self):
        dist.all_to_all_single(self.output, self.input)

    def point_to_point(self):
        both = [dist.P2POp(dist.isend, self.input, (self.rank + 1) % self.ranks),
                dist.P2POp(dist.irecv, self.output, (self.rank - 1) % self.ranks)]
        for work in dist.batch_isend_irecv(both):
            work.wait()

    def barrier(self):
        gpu = [self.device.index] if self.device.type == "cuda" else None
        dist.barrier(device_ids=gpu)

    def expected(self):
        """Returns the result if every element of rank r's input is r + 1."""
        total = self.ranks * (self.ranks + 1) / 2
        each = torch.arange(1.0, self.ranks + 1, device=self.device)
        parts = each.repeat_interleave(self.part)
        at_root = {"reduce": total, "gather": parts}
        before = float((self.rank - 1) % self.ranks + 1)
        everywhere = {"all_reduce": total, "reduce_scatter": total, "all_gather": parts,
                      "all_to_all": parts, "point_to_point": before}
        if self.rank == 0 and self.name in at_root:
            return at_root[self.name]
        return everywhere.get(self.name, 1.0)

    def count_wrong(self):
        self.input.fill_(self.rank + 1)
        self.output.fill_(self.rank + 1)
        self.run()
        # On ranks other than the root, Gloo may leave intermediate results.
        unspecified = self.rank > 0 and self.name in ("reduce", "gather")
        wrong = torch.tensor(0 if unspecified else (self.output != self.expected()).sum().item())
        dist.all_reduce(wrong)
        self.input.zero_()
        self.output.zero_()
        return wrong.item()

    def seconds(self):
        if self.name in ROOTED:  # Otherwise one rank would run ahead of the others.
            self.barrier()
        start = time.perf_counter()
        self.run()
        return time.perf_counter() - start


def iterations_for(once, seconds):
    """Returns rank 0's number on all ranks."""
    wanted = torch.tensor(min(max(int(seconds / once), 5), 2000))
    dist.broadcast(wanted, 0)
    return wanted.item()


def measure(test, iterations, seconds, warmup):
    wrong = test.count_wrong()
    for _ in range(max(warmup, 1)):
        once = test.seconds()
    iterations = iterations or iterations_for(once, seconds)
    test.barrier()
    used = time.process_time()
    times = [test.seconds() for _ in range(iterations)]
    cpu = torch.tensor((time.process_time() - used) / test.ranks, dtype=torch.float64)
    times.sort()
    figures = torch.tensor([times[math.ceil((iterations - 1) / 2)],
                            times[math.ceil(0.99 * (iterations - 1))]], dtype=torch.float64)
    dist.all_reduce(figures, op=dist.ReduceOp.MAX)  # The slowest rank's.
    dist.all_reduce(cpu)
    return {"collective": test.name, "bytes": test.bytes, "ranks": test.ranks,
            "iterations": iterations, "median_us": figures[0].item() * 1e6,
            "p99_us": figures[1].item() * 1e6,
            "cpu_seconds": cpu.item() / iterations, "wrong": wrong}


def main():
    if len(sys.argv) < 7:
        sys.exit(__doc__)
    backend, name, iterations, seconds, warmup = (sys.argv[1], sys.argv[2], int(sys.argv[3]),
                                                  float(sys.argv[4]), int(sys.argv[5]))
    torch.set_num_threads(1)
    device = torch.device("cpu")
    if backend == "nccl":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    # Figures are summed in the memory of the host.
    dist.init_process_group("gloo" if backend == "gloo" else "cpu:gloo,cuda:nccl")
    rows = [measure(Test(name, int(size), device), iterations, seconds, warmup)
            for size in sys.argv[6:]]
    if int(os.environ["RANK"]) == 0:
        print(json.dumps({"rows": [{"engine": backend, **row} for row in rows]}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
