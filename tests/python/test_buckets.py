"""Bucket sizes of DistributedDataParallel: 5 MiB over gradwire unless specified. Two ranks."""

import os
import unittest

import ranks
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

MIB = 1 << 20
VARIABLE = "GRADWIRE_DDP_BUCKET_MB"


def layers():
    """16 MiB of weights, 1 MiB each."""
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(512, 512, bias=False) for _ in range(16)))


def cap(**options):
    return DistributedDataParallel(nn.Linear(2, 2), **options).bucket_bytes_cap


class Buckets(unittest.TestCase):
    def tearDown(self):
        os.environ.pop(VARIABLE, None)

    def test_are_of_5_mib_in_the_steps_too(self):
        model, sizes = DistributedDataParallel(layers()), []

        def note_size(_, bucket):
            sizes.append(bucket.buffer().nbytes)
            return allreduce_hook(dist.group.WORLD, bucket)

        model.register_comm_hook(None, note_size)
        for _ in range(2):  # DDP rebuilds its buckets after the first step.
            sizes.clear()
            model(torch.ones(1, 512)).sum().backward()
        self.assertEqual(sizes, [5 * MIB, 5 * MIB, 5 * MIB, MIB])

    def test_are_as_they_were_told_to_be(self):
        self.assertEqual(cap(bucket_cap_mb=25), 25 * MIB)
        self.assertEqual(cap(bucket_cap_mb_list=[1, 3]), 3 * MIB)
        positional = (None, None, 0, None, True, None, 7)
        self.assertEqual(DistributedDataParallel(nn.Linear(2, 2), *positional).bucket_bytes_cap,
                         7 * MIB)
        os.environ[VARIABLE] = "2.5"
        self.assertEqual(cap(), 5 * MIB // 2)
        self.assertEqual(cap(bucket_cap_mb=25), 25 * MIB)

    def test_are_pytorchs_over_another_backend(self):
        self.assertEqual(cap(process_group=dist.new_group(backend="gloo")), 25 * MIB)

    def test_follow_the_mesh(self):
        mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
        self.assertEqual(cap(device_mesh=mesh), 5 * MIB)

    def test_of_a_size_that_is_none_are_an_error(self):
        for text in ("many", "0", "-1", "inf", "nan"):
            os.environ[VARIABLE] = text
            with self.assertRaisesRegex(ValueError, f"{VARIABLE} is '{text}'"):
                cap()

    def test_wrong_arguments_stay_pytorchs_errors(self):
        with self.assertRaises(TypeError):
            DistributedDataParallel(nn.Linear(2, 2), no_such_option=1)
        with self.assertRaisesRegex(RuntimeError, "any parameter that requires a gradient"):
            DistributedDataParallel(nn.ReLU())


if __name__ == "__main__":
    ranks.main(2)
