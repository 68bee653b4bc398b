"""Steps of PyTorch's DistributedDataParallel over Gloo or gradwire, measured as `gradwire bench
step` measures: forward and backward of a layer sleep, and communication is real. Times are those of
the slowest rank. Rank 0 prints {"rows": [...]}. There is no optimizer, and gradients are in the
buckets from the start, which is DDP's best case.

usage: ddp_step.py JOB [--backend gloo|gradwire]      (in torchrun's environment)
JOB is JSON: {"codec": "none", "bf16", "fp16" or "power_sgd[:RANK]" (over gradwire any of its
codecs, whose bytes are not counted), "accumulate", "overlap": "none"
or "backward", "compute_ms", "steps": 0 for those of "seconds", "seconds", "warmup", "single_steps",
"layers": [[forward, backward, [shape, ...]], ...]}, shares of compute_ms; "bucket_cap_mb" if not
DDP's own}.
"""

import contextlib
import json
import os
import resource
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel


class Device:
    """An accelerator that executes its queue; it does not wait for a late host unless it had to."""

    def __init__(self):
        self.free_at = time.monotonic()
        self.stalled = 0.0

    def compute(self, seconds):
        self.free_at += seconds
        time.sleep(max(self.free_at - time.monotonic(), 0))

    def resume(self):
        late = time.monotonic() - self.free_at
        if late > 0:
            self.stalled += late
            self.free_at += late


class Sleep(torch.autograd.Function):
    """A layer that computes by sleeping."""

    @staticmethod
    def forward(context, x, layer, *_):
        context.layer = layer
        layer.device.compute(layer.forward_seconds)
        return x.view_as(x)

    @staticmethod
    def backward(context, gradient):
        layer = context.layer
        layer.device.compute(layer.backward_seconds)
        return (gradient, None, *layer.gradients)


class Layer(torch.nn.Module):
    def __init__(self, device, forward_seconds, backward_seconds, shapes):
        super().__init__()
        self.device = device
        self.forward_seconds, self.backward_seconds = forward_seconds, backward_seconds
        self.weights = torch.nn.ParameterList(torch.zeros(shape) for shape in shapes)
        self.gradients = [1e-3 * torch.randn(shape) for shape in shapes]

    def forward(self, x):
        return Sleep.apply(x, self, *self.weights)


def one_at_a_time(state, bucket):
    """Waits for each bucket. PowerSGD reduces several times per bucket, and its order of operations
    over Gloo depends on what has arrived. With several buckets in flight, ranks would use different
    orders."""
    future = powerSGD_hook.powerSGD_hook(state, bucket)
    future.wait()
    return future


class Steps:
    def __init__(self, job):
        self.job = job
        self.device = Device()
        scale = job["compute_ms"] / 1e3
        layers = [Layer(self.device, forward * scale, backward * scale, shapes)
                  for forward, backward, shapes in job["layers"]]
        model = torch.nn.Sequential(*layers)
        self.elements = sum(p.numel() for p in model.parameters())
        options = {"gradient_as_bucket_view": True}
        if "bucket_cap_mb" in job:
            options["bucket_cap_mb"] = job["bucket_cap_mb"]
        if job["overlap"] == "none":  # One bucket, which is full at the end of backward.
            dist._DEFAULT_FIRST_BUCKET_BYTES = 1 << 40
            options["bucket_cap_mb"] = 1 << 20
        self.model = DistributedDataParallel(model, **options)
        self.state = None
        self.add_hook()
        self.input = torch.zeros(1, requires_grad=True)

    def add_hook(self):
        name, _, rank = self.job["codec"].partition(":")
        if dist.get_backend() == "gradwire" and name != "none":
            import gradwire

            gradwire.hooks.register(self.model, self.job["codec"])
        elif name == "power_sgd":
            self.state = powerSGD_hook.PowerSGDState(
                None, matrix_approximation_rank=int(rank or 1), start_powerSGD_iter=2)
            self.model.register_comm_hook(self.state, one_at_a_time)
        elif name != "none":
            hook = getattr(default_hooks, f"{name}_compress_hook")
            # A lambda, as DDP refuses the bf16 hook by its name without NCCL; Gloo supports it.
            self.model.register_comm_hook(None, lambda state, bucket: hook(state, bucket))

    def bytes_per_step(self):
        """Returns bytes that a rank sends with Gloo's ring: 2(P-1)/P of the reduced bytes."""
        ranks = dist.get_world_size()
        size = 2 if self.job["codec"] in ("bf16", "fp16") else 4
        elements = self.state.compression_stats()[2] / self.steps_done if self.state else (
            self.elements)
        return 2 * (ranks - 1) / ranks * size * elements

    def step(self, communicates=True):
        for i in range(self.job["accumulate"]):
            last = communicates and i + 1 == self.job["accumulate"]
            with contextlib.nullcontext() if last else self.model.no_sync():
                self.model(self.input).sum().backward()
            self.device.resume()  # Backward ends when all buckets are reduced.

    def run(self, count, communicates=True):
        """Returns seconds per step, and the exposed part of them."""
        dist.barrier()
        self.device.resume()
        begin, stalled = self.device.free_at, self.device.stalled
        for _ in range(count):
            self.step(communicates)
        self.steps_done = count
        return ((self.device.free_at - begin) / count, (self.device.stalled - stalled) / count)


def highest(*values):
    figures = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(figures, op=dist.ReduceOp.MAX)
    return figures.tolist()


def cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def measure(job):
    steps = Steps(job)
    steps.run(2)  # DDP rebuilds its buckets after the first step.
    single, = highest(steps.run(job["single_steps"], communicates=False)[0])
    once, = highest(steps.run(job["warmup"])[0])
    count = job["steps"] or max(int(job["seconds"] / once), 3)
    if steps.state:
        steps.state.total_numel_before_compression = steps.state.total_numel_after_compression = 0
    used = cpu_seconds()
    step, exposed = steps.run(count)
    step, exposed, cpu = highest(step, exposed, (cpu_seconds() - used) / count)
    system = "ddp" if dist.get_backend() == "gloo" else f"ddp over {dist.get_backend()}"
    return {"system": system, "codec": job["codec"], "accumulate": job["accumulate"],
            "local_steps": 1, "overlap": job["overlap"], "ranks": dist.get_world_size(),
            "steps": count, "single_ms": 1e3 * single, "step_ms": 1e3 * step,
            "exposed_ms": 1e3 * exposed, "eta": min(single / step, 1),
            "bytes_per_step": steps.bytes_per_step(), "cpu_ms": 1e3 * cpu}


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
