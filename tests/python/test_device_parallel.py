"""Several devices in one process, on two ranks: DeviceParallel has the bits of two processes."""

import gc
import threading
import unittest
import weakref

import gradwire
import ranks
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = 6


def network():
    torch.manual_seed(3)
    return torch.nn.Sequential(
        torch.nn.Linear(7, 33), torch.nn.BatchNorm1d(33), torch.nn.Tanh(), torch.nn.Linear(33, 2))


def samples(step, rank):
    return torch.randn(6, 7, generator=torch.Generator().manual_seed(100 * step + rank))


def train(model, rank, steps=STEPS):
    """Returns the parameters after some steps on the samples of a rank."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(steps):
        (model(samples(step, rank)) - 1).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return [parameter.detach().clone() for parameter in model.parameters()]


def train_on_devices(count, **options):
    model = gradwire.DeviceParallel(network(), ["cpu"] * count, **options)
    return model.run(lambda replica, _: train(replica, replica.rank))


class DeviceParallel(unittest.TestCase):
    def assert_same(self, found, expected):
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=0)

    def test_two_devices_have_the_bits_of_two_processes(self):
        expected = train(DistributedDataParallel(network()), dist.get_rank())
        for options in ({}, {"bucket_cap_mb": 0.0005}, {"find_unused_parameters": True}):
            for found in train_on_devices(2, **options):
                self.assert_same(found, expected)

    @ranks.needs("a communicator")
    def test_processes_of_two_devices_train_together(self):
        expected = train_on_devices(4)[0]
        found = train_on_devices(2, process_group=dist.new_group([0, 1]))
        for parameters in found:  # Both add neighbours, then these sums.
            self.assert_same(parameters, expected)

    def test_codecs_work_between_threads(self):
        plain, coded = train_on_devices(2), train_on_devices(2, codec="int8", codec_min_elements=1)
        self.assert_same(coded[0], coded[1])
        self.assertFalse(torch.equal(coded[0][0], plain[0][0]))
        torch.testing.assert_close(coded[0], plain[0], rtol=0.1, atol=0.05)

    def test_gradients_accumulate_without_synchronization(self):
        model = gradwire.DeviceParallel(torch.nn.Linear(3, 1), ["cpu", "cpu"])

        def gradient(replica, index):
            with replica.no_sync():
                replica(torch.full((1, 3), float(index))).backward()
                alone = replica.module.weight.grad.clone()
            replica(torch.full((1, 3), 10.0)).backward()
            replica.finish()
            return alone, replica.module.weight.grad

        for index, (alone, together) in enumerate(model.run(gradient)):
            self.assertEqual(alone.tolist(), [[index] * 3])
            self.assertEqual(together.tolist(), [[10.5] * 3])

    def test_each_replica_has_a_thread_and_its_share_of_cores(self):
        model = gradwire.DeviceParallel(network(), ["cpu"] * 3)
        torch.set_num_threads(6)
        self.addCleanup(torch.set_num_threads, 1)
        all_run = threading.Barrier(3)

        def describe(replica, index):
            all_run.wait()
            return replica.rank, index, threading.get_ident(), torch.get_num_threads()

        found = model.run(describe)
        self.assertEqual([each[:2] for each in found], [(0, 0), (1, 1), (2, 2)])
        self.assertEqual(len({each[2] for each in found} | {threading.get_ident()}), 4)
        self.assertEqual({each[3] for each in found}, {2})
        self.assertEqual(torch.get_num_threads(), 6)

    def test_the_first_error_ends_all(self):
        model = gradwire.DeviceParallel(network(), ["cpu"] * 3)
        seen = []

        def fail(replica, index):
            if index == 1:
                raise KeyError("no such image")
            try:
                train(replica, index)
            except RuntimeError as error:
                seen.append(str(error))
                raise

        with self.assertRaisesRegex(KeyError, "no such image"):
            model.run(fail)
        self.assertEqual(len(seen), 2)
        for text in seen:
            self.assertIn("KeyError: 'no such image'", text)
        with self.assertRaisesRegex(RuntimeError, "no such image"):
            model.run(lambda replica, index: train(replica, index))

    def test_arguments_are_checked(self):
        with self.assertRaisesRegex(ValueError, "devices is empty"):
            gradwire.DeviceParallel(network(), [])
        with self.assertRaisesRegex(RuntimeError, "backend gradwire"):
            gradwire.DeviceParallel(network(), ["cpu"], process_group=dist.new_group(
                [0, 1], backend="gloo"))

    def test_the_model_is_released(self):
        model = gradwire.DeviceParallel(network(), ["cpu", "cpu"])
        model.run(lambda replica, index: train(replica, index, steps=1))
        released = weakref.ref(model.replicas[0].module)
        del model
        gc.collect()
        self.assertIsNone(released())


if __name__ == "__main__":
    ranks.main(2)
