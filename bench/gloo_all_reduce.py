"""One rank of an all-reduce over Gloo, measured as `gradwire bench` measures: each iteration's time
is that of the slowest rank. Rank 0 prints one JSON line.

usage: gloo_all_reduce.py BYTES ITERATIONS      (in torchrun's environment)
"""

import json
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist


def main():
    size, iterations = int(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    data = torch.zeros(size // 4)
    for _ in range(2):
        dist.all_reduce(data)
    times = torch.zeros(iterations, dtype=torch.float64)
    dist.barrier()
    for i in range(iterations):
        start = time.perf_counter()
        dist.all_reduce(data)
        times[i] = time.perf_counter() - start
    dist.all_reduce(times, op=dist.ReduceOp.MAX)
    if int(os.environ["RANK"]) == 0:
        print(json.dumps({"median_us": statistics.median(times.tolist()) * 1e6}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
