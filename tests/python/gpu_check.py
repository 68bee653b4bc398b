"""Checks the backend on real accelerators: collectives, streams, DDP, codecs and speed.

No part of the test suite, which has no accelerator. Run it where PyTorch sees one (all ranks share
the accelerators round-robin):

    PYTHONPATH=BUILD/python python3 tests/python/gpu_check.py

The other tests run there too: GRADWIRE_TEST_DEVICE=cuda python3 tests/python/test_operations.py
"""

import os
import time
import unittest

import ranks
import torch
import torch.distributed as dist
from gradwire import hooks
from torch.nn.parallel import DistributedDataParallel

RANK = int(os.environ.get("RANK", 0))
WORLD = int(os.environ.get("WORLD_SIZE", 1))
TYPE = torch.accelerator.current_accelerator()
DEVICE = None if TYPE is None else torch.device(TYPE.type, RANK % torch.accelerator.device_count())
STEPS = 20


def model():
    torch.manual_seed(7)
    return torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.GELU(),
                               torch.nn.Linear(1024, 1024), torch.nn.GELU(),
                               torch.nn.Linear(1024, 10)).to(DEVICE)


def batch(step, rank):
    generator = torch.Generator().manual_seed(100 * step + rank)
    return (torch.randn(16, 256, generator=generator).to(DEVICE),
            torch.randint(10, (16,), generator=generator).to(DEVICE))


def train(net, parts, divisor):
    optimizer = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9)
    for step in range(STEPS):
        optimizer.zero_grad()
        for rank in parts:
            inputs, targets = batch(step, rank)
            (torch.nn.functional.cross_entropy(net(inputs), targets) / divisor).backward()
        optimizer.step()
    return [p.detach().clone() for p in net.parameters()]


def seconds_of(work, times=8):
    """Median time of `work`, after one that warms up."""
    measured = []
    for _ in range(times + 1):
        dist.barrier()
        torch.accelerator.synchronize()
        begin = time.perf_counter()
        work()
        torch.accelerator.synchronize()
        measured.append(time.perf_counter() - begin)
    return sorted(measured[1:])[times // 2]


class OnAnAccelerator(unittest.TestCase):
    def test_streams_order_an_operation(self):
        """The operand is still being computed when the operation is posted, and its result is used
        right after wait()."""
        factor = torch.full((2048, 2048), 1.0 / 2048, device=DEVICE)
        for trial in range(10):
            x = torch.full((2048, 2048), float(RANK + trial), device=DEVICE)
            for _ in range(20):
                x = x @ factor  # Leaves x, exactly.
            work = dist.all_reduce(x, async_op=True)
            work.wait()
            y = x * 2
            expected = 2.0 * sum(rank + trial for rank in range(WORLD))
            self.assertTrue(torch.equal(y, torch.full_like(y, expected)), trial)

    def test_a_side_stream(self):
        side = torch.Stream(device=DEVICE)
        x = torch.ones(1 << 20, device=DEVICE)
        torch.accelerator.synchronize()
        with side:
            for _ in range(50):
                x.mul_(1.0)
            x.mul_(RANK + 1)
            dist.all_reduce(x)
            x.add_(1)
        side.synchronize()
        self.assertTrue(torch.equal(x, torch.full_like(x, WORLD * (WORLD + 1) / 2 + 1)))

    def test_ddp_trains_as_one_process(self):
        net = DistributedDataParallel(model())
        found = train(net, [RANK], 1)
        expected = train(model(), range(WORLD), WORLD)
        for a, b in zip(found, expected):
            self.assertTrue(torch.allclose(a, b, rtol=1e-3, atol=1e-5), (a - b).abs().max())
        for value in found:
            first = value.clone()
            dist.broadcast(first, 0)
            self.assertTrue(torch.equal(first, value))

    def test_ddp_with_a_codec(self):
        net = DistributedDataParallel(model())
        hooks.register(net, "int8")
        for a, b in zip(train(net, [RANK], 1), train(model(), range(WORLD), WORLD)):
            self.assertTrue(torch.allclose(a, b, rtol=0.1, atol=0.05), (a - b).abs().max())

    def test_speed_beside_gloo(self):
        """Prints; asserts results only."""
        gloo = dist.new_group(backend="gloo")
        for mebibytes in (1, 16, 64):
            x = torch.ones(mebibytes << 18, device=DEVICE)
            host = torch.ones(mebibytes << 18)
            times = {
                "gradwire": seconds_of(lambda: dist.all_reduce(x, dist.ReduceOp.MAX)),
                "gloo": seconds_of(lambda: dist.all_reduce(x, dist.ReduceOp.MAX, group=gloo)),
                "gradwire, host memory": seconds_of(
                    lambda: dist.all_reduce(host, dist.ReduceOp.MAX)),
            }
            if RANK == 0:
                for name, seconds in times.items():
                    print(f"all_reduce {mebibytes:3} MiB {name:22} {1e3 * seconds:8.2f} ms",
                          flush=True)
            self.assertTrue(torch.equal(x, torch.ones_like(x)))


if __name__ == "__main__":
    if TYPE is None:
        raise SystemExit("PyTorch sees no accelerator here")
    ranks.main(4, least=4, fresh=True)
