"""Steps of torch.distributed.pipelining over Gloo or gradwire, measured as by `gradwire bench
pipeline`: computations sleep, and communication is real. The time is the median of the slowest
rank. Rank 0 prints {"rows": [...]}. There is no optimizer.

usage: pipeline_step.py JOB [--backend gloo|gradwire]      (in torchrun's environment)
JOB is JSON: {"schedule": "GPipe", "1F1B", "Interleaved1F1B", "InterleavedZeroBubble" or
"ZBVZeroBubble", "chunks": stages per rank, "micro_batches", "forward_ms", "input_ms", "weight_ms":
of a rank's stages together, "message_bytes", "barrier", "warmup", "steps"}.
"""

import json
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import get_schedule_class


class Sleep(torch.autograd.Function):
    """Computes by sleeping."""

    @staticmethod
    def forward(context, x, weight, module):
        context.module = module
        time.sleep(module.forward_seconds)
        return x.view_as(x)

    @staticmethod
    def backward(context, gradient):
        time.sleep(context.module.input_seconds)
        # Gloo sends contiguous tensors only; that of a sum is expanded.
        return gradient.contiguous(), context.module.gradient, None


class Computation(torch.nn.Module):
    def __init__(self, job):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.gradient = torch.zeros(1)
        share = 1e-3 / job["chunks"]
        self.forward_seconds = share * job["forward_ms"]
        self.input_seconds = share * job["input_ms"]
        self.weight_seconds = share * job["weight_ms"]

    def forward(self, x):
        return Sleep.apply(x, self.weight, self)

    def weight_gradients(self):
        """Returns what PyTorch calls for the gradients of weights of one micro-batch."""
        return lambda: time.sleep(self.weight_seconds)


def stages_of(job):
    rank, ranks, chunks = dist.get_rank(), dist.get_world_size(), job["chunks"]
    indices = [rank + ranks * chunk for chunk in range(chunks)]
    if job["schedule"] == "ZBVZeroBubble":
        indices = [rank, 2 * ranks - 1 - rank]
    stages = []
    for index in indices:
        module = Computation(job)
        stages.append(PipelineStage(module, index, ranks * chunks, torch.device("cpu"),
                                    dw_builder=module.weight_gradients))
    return stages


def loss(output, target):
    return output.sum() + target.sum() * 0


def schedule_of(job, stages):
    cls = get_schedule_class(job["schedule"])
    single = job["schedule"] in ("GPipe", "1F1B")
    return cls(stages[0] if single else stages, job["micro_batches"], loss_fn=loss,
               scale_grads=False)


def measure(job):
    stages = stages_of(job)
    schedule = schedule_of(job, stages)
    batch = torch.zeros(job["micro_batches"], max(job["message_bytes"] // 4, 1),
                        requires_grad=True)
    first = any(stage.is_first for stage in stages)
    last = any(stage.is_last for stage in stages)
    durations = []
    for _ in range(job["warmup"] + job["steps"]):
        begin = time.monotonic()
        target = {"target": torch.zeros(job["micro_batches"], 1)} if last else {}
        schedule.step(*([batch] if first else []), **target)
        if job["barrier"]:
            dist.barrier()
        durations.append(time.monotonic() - begin)
    step = torch.tensor(statistics.median(durations[job["warmup"]:]), dtype=torch.float64)
    dist.all_reduce(step, op=dist.ReduceOp.MAX)
    ideal = job["micro_batches"] * (job["forward_ms"] + job["input_ms"] + job["weight_ms"])
    step_ms = 1e3 * step.item()
    return {"schedule": job["schedule"], "barrier": job["barrier"], "step_ms": step_ms,
            "ideal_ms": ideal, "bubble": max(0, 1 - ideal / step_ms)}


def main():
    if len(sys.argv) not in (2, 4) or (len(sys.argv) == 4 and sys.argv[2] != "--backend"):
        sys.exit(__doc__)
    backend = sys.argv[3] if len(sys.argv) == 4 else "gloo"
    torch.set_num_threads(1)
    if backend == "gradwire":
        import gradwire  # noqa: F401: registers the backend
    dist.init_process_group(backend)
    row = measure(json.loads(sys.argv[1]))
    if int(os.environ["RANK"]) == 0:
        print(json.dumps({"rows": [row]}), flush=True)
    dist.destroy_process_group()
    if backend == "gloo":
        # Skips Python's shutdown, in which PyTorch's threads sometimes abort the process.
        os._exit(0)


if __name__ == "__main__":
    main()
