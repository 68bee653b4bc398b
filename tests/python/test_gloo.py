"""PyTorch's Gloo under gradwire: the suites of all classes that take a group of any backend, and 50
steps of every strategy with the losses of gradwire's engine. Four ranks."""

import os
import unittest

os.environ["GRADWIRE_TEST_BACKEND"] = "gloo"  # Before the suites are imported.

import gradwire
import ranks
import test_host
import test_pipelining
import torch
import torch.distributed as dist
from gradwire.pipeline import Schedule
from test_hooks import Tracing  # noqa: F401: unittest runs it, and the next ones.
from test_host import Host  # noqa: F401
from test_pipelining import Refusals, Runtime  # noqa: F401
from torch import nn
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

STEPS = 50


def network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 5))


def batch(step, rank):
    generator = torch.Generator().manual_seed(100 * step + rank)
    return (torch.randn(6, 12, generator=generator),
            torch.randint(0, 5, (6,), generator=generator))


def losses_of(model, optimizer, rank, after_step=lambda: None):
    """Returns this rank's losses."""
    losses = []
    for step in range(STEPS):
        inputs, targets = batch(step, rank)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        after_step()
        losses.append(loss.item())
    return losses


def sgd_of(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def training_host(group, rank):
    model, losses = test_host.Model(group=group), []
    for step in range(STEPS):
        loss = model.loss(test_host.samples(step, rank))
        loss.backward()
        model.host.begin_step()
        losses.append(loss.item())
    model.host.finish()
    return losses


def data_parallel(group, rank):
    model = DistributedDataParallel(network(), process_group=group)
    return losses_of(model, sgd_of(model), rank)


def zero_1(group, rank):
    model = DistributedDataParallel(network(), process_group=group)
    return losses_of(model, ZeroRedundancyOptimizer(
        model.parameters(), torch.optim.Adam, process_group=group, lr=0.01), rank)


def sharded(group, rank, **options):
    mesh = dist.DeviceMesh.from_group(group, "cpu", mesh_dim_names=("all",))
    model = network()
    for module in (model[0], model[2], model):
        fully_shard(module, mesh=mesh, **options)
    return losses_of(model, torch.optim.Adam(model.parameters(), lr=0.01), rank)


def zero_2(group, rank):
    return sharded(group, rank, reshard_after_forward=False)


def zero_3(group, rank):
    return sharded(group, rank, reshard_after_forward=True)


def local_steps(group, rank):
    model = network()
    averager = PeriodicModelAverager(period=5, process_group=group)
    return losses_of(model, sgd_of(model), rank,
                     lambda: averager.average_parameters(model.parameters()))


class Strategies(unittest.TestCase):
    """Over Gloo and over gradwire's engine."""

    @classmethod
    def setUpClass(cls):
        cls.ours = dist.new_group(backend="gradwire")
        halves = [[dist.new_group(half, backend=backend) for half in ([0, 1], [2, 3])]
                  for backend in ("gradwire", "gloo")]
        cls.pairs = [pair[dist.get_rank() // 2] for pair in halves]

    def test_losses_of_two_ranks_are_the_same_bits(self):
        """There is only one order of a sum."""
        ours, gloo = self.pairs
        for run in (training_host, data_parallel, zero_1, zero_2, zero_3, local_steps):
            with self.subTest(run.__name__):
                rank = dist.get_rank(ours)
                self.assertEqual(run(gloo, rank), run(ours, rank))

    def test_losses_of_four_ranks_are_the_same(self):
        for run in (training_host, data_parallel, zero_1, zero_3, local_steps):
            with self.subTest(run.__name__):
                found = run(dist.group.WORLD, dist.get_rank())
                for one, other in zip(found, run(self.ours, dist.get_rank()), strict=True):
                    self.assertAlmostEqual(one, other, delta=1e-5)

    def test_losses_of_a_pipeline_of_four_are_the_same_bits(self):
        schedule = Schedule.named("1f1b", ranks=4, micro_batches=4)
        train = test_pipelining.Case().train
        found, _ = train(schedule, steps=STEPS)
        expected, _ = train(schedule, self.ours, steps=STEPS)
        self.assertEqual(len(found), 4 * STEPS if dist.get_rank() == 3 else 0)
        self.assertEqual(found, expected)


class NeedsOurEngine(unittest.TestCase):
    """Refused by name."""

    def test_codecs(self):
        model = DistributedDataParallel(network())
        with self.assertRaisesRegex(ValueError, "for cpu is gloo, not gradwire"):
            gradwire.hooks.int8(model)
        self.assertIn('codec "int8" requires a process group of backend gradwire',
                      test_host.error_of(lambda: test_host.Model(codec="int8")))

    def test_devices_of_several_processes(self):
        with self.assertRaisesRegex(RuntimeError, "need a process group of backend gradwire"):
            gradwire.DeviceParallel(network(), ["cpu", "cpu"], process_group=dist.group.WORLD)

    def test_the_backends_own_object(self):
        with self.assertRaisesRegex(ValueError, "for cpu is gloo, not gradwire"):
            gradwire.backend_of()


if __name__ == "__main__":
    ranks.main(4, least=20)
