"""Groups in two levels, on four ranks that count as two hosts: another backend inside a host."""

import os
import unittest
from unittest import mock

import gradwire
import ranks
import torch
import torch.distributed as dist
from gradwire import inside
from torch import nn
from torch.nn.parallel import DistributedDataParallel

COUNT = 100_003  # Not a multiple of any number of ranks.


def on_host(name):
    return mock.patch.object(inside, "_machine", lambda: name)


def group_with(name):
    """A group of all ranks: 0 and 2 count as one host, 1 and 3 as another."""
    with on_host(f"host {dist.get_rank() % 2}"):
        return dist.new_group(backend="gradwire", pg_options=gradwire.Options(inside=name))


def values(rank, dtype=torch.float32, count=COUNT):
    return (torch.arange(count) * (rank + 1) % 13).to(dtype)


def losses(group, hook_up=lambda model: None, steps=20):
    """Trains a small network on parts of the batch; returns the losses, and the last weights."""
    torch.manual_seed(0)
    model = DistributedDataParallel(
        nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 10)), process_group=group)
    hook_up(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    generator = torch.Generator().manual_seed(dist.get_rank())
    x = torch.randn(8, 64, generator=generator)
    y = torch.randint(0, 10, (8,), generator=generator)
    found = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found, [p.detach().clone() for p in model.parameters()]


class Inside(unittest.TestCase):
    def assert_same_on_all_ranks(self, tensors):
        everywhere = [None] * dist.get_world_size()
        dist.all_gather_object(everywhere, tensors)
        for other in everywhere:
            for one, another in zip(tensors, other, strict=True):
                self.assertTrue(one.equal(another))

    def test_collectives(self):
        size, rank = dist.get_world_size(), dist.get_rank()
        for name in ("gloo", "own"):
            group = group_with(name)
            for dtype in (torch.float32, torch.bfloat16, torch.int64):
                tensor = values(rank, dtype)
                dist.all_reduce(tensor, group=group)
                wanted = sum(values(r, dtype) for r in range(size))
                torch.testing.assert_close(tensor, wanted, rtol=2 ** -7, atol=0)
            mean = values(rank, torch.float16)
            dist.all_reduce(mean, op=dist.ReduceOp.AVG, group=group)
            self.assertEqual(mean[5], sum(values(r)[5] for r in range(size)) / size)
            whole = values(rank, count=40_000 * size)
            part = torch.empty(40_000)
            dist.reduce_scatter_tensor(part, whole, group=group)
            total = sum(values(r, count=40_000 * size) for r in range(size))
            self.assertTrue(part.equal(total.chunk(size)[rank]))
            dist.all_gather_into_tensor(whole, part, group=group)
            self.assertTrue(whole.equal(total))
            dist.barrier(group=group)

    def test_tensors_of_any_type_and_strides(self):
        size, rank = dist.get_world_size(), dist.get_rank()
        for name in ("gloo", "own"):
            group = group_with(name)
            for dtype in (torch.int16, torch.bool, torch.float8_e5m2):
                part = (torch.arange(COUNT) % (rank + 2) == 0).to(dtype)
                whole = torch.empty(COUNT * size, dtype=dtype)
                dist.all_gather_into_tensor(whole, part, group=group)
                for r, one in enumerate(whole.float().chunk(size)):
                    self.assertTrue(one.equal((torch.arange(COUNT) % (r + 2) == 0).float()))
            # On some ranks alone.
            square = torch.full((200, 300), float(rank)).t() if rank else torch.zeros(300, 200)
            dist.all_reduce(square, group=group)
            self.assertTrue(square.eq(6).all())
            sparse = torch.sparse_coo_tensor([[rank]], [1.0], (COUNT,))
            dist.all_reduce(sparse, group=group)
            self.assertEqual(sparse.to_dense().sum(), size)

    def test_a_forked_child_is_refused(self):
        group = group_with("own")
        dist.all_reduce(torch.ones(COUNT), group=group)
        child = os.fork()
        if child == 0:
            try:
                dist.all_reduce(torch.ones(COUNT), group=group)
            except ValueError as error:
                os._exit(0 if "forked" in str(error) else 1)
            os._exit(2)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        dist.barrier(group=group)

    def test_a_rank_that_fails_leaves_whatever_its_backend_waits_for(self):
        group = group_with("gloo")
        dist.barrier()  # All ranks have made it.
        if dist.get_rank() == 0:
            dist.all_reduce(torch.ones(COUNT), group=group, async_op=True)
            try:
                raise ValueError("a rank fails")
            except ValueError:
                gradwire.backend_of(group).shutdown()  # Gloo waits for half an hour.
        dist.barrier()

    def test_hosts_exchange_the_bytes_of_one_rank_each(self):
        group = group_with("gloo")
        backend = gradwire.backend_of(group)
        dist.barrier(group=group)
        before = backend.bytes_sent
        dist.all_reduce(torch.ones(1 << 20), group=group)
        sent = backend.bytes_sent - before
        # Two ranks would send all 4 MiB each: each of the two places sends its half.
        self.assertAlmostEqual(sent / (2 << 20), 1, delta=0.01)

    def test_training(self):
        wanted, _ = losses(dist.new_group(backend="gloo"))
        for name in ("gloo", "own"):
            found, weights = losses(group_with(name))
            for one, other in zip(wanted, found, strict=True):
                self.assertAlmostEqual(one, other, delta=1e-5)
            self.assert_same_on_all_ranks(weights)

    def test_codecs_between_hosts(self):
        wanted, _ = losses(dist.group.WORLD, gradwire.hooks.int8)
        found, weights = losses(group_with("gloo"), gradwire.hooks.int8)
        self.assertAlmostEqual(wanted[-1], found[-1], delta=0.2)
        self.assertLess(found[-1], found[0])
        self.assert_same_on_all_ranks(weights)
        with self.assertRaisesRegex(ValueError, "with inside, each rank of a host has a part"):
            losses(group_with("own"), lambda m: gradwire.hooks.register(m, "power_sgd:2"))

    def test_other_groups_have_no_backend_inside(self):
        options = gradwire.Options(inside="gloo")
        self.assertEqual(options.inside, "gloo")
        self.assertEqual(gradwire.backend_of(dist.new_group(backend="gradwire")).options.inside, "")

    def test_mistakes(self):
        for name, text in (("mpi4", "inside='mpi4' is no backend; it has .*gloo.*nccl.*own"),
                           ("nccl", "inside=\"nccl\": ")):
            with self.assertRaisesRegex(ValueError, text):
                group_with(name)
        uneven = "small" if dist.get_rank() == 3 else "large"
        with on_host(uneven), self.assertRaisesRegex(
                RuntimeError, r"hosts have different numbers of ranks, \[0, 1, 2\] and \[3\]"):
            dist.new_group(backend="gradwire", pg_options=gradwire.Options(inside="gloo"))


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    ranks.main(4, least=9)
