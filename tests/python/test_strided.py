"""Tensors that are not contiguous, or the same twice, as Gloo takes them."""

import unittest

import ranks
import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

SHAPE = (2, 3, 4, 5)


def numbers(rank):
    return torch.arange(120, dtype=torch.float32).reshape(SHAPE) + 1000 * rank


def views(values):
    """The same values with other strides; on every rank others."""
    wide = torch.zeros(*SHAPE[:-1], 2 * SHAPE[-1])
    wide[..., ::2] = values
    return [values.to(memory_format=torch.channels_last),
            values.permute(3, 1, 0, 2).contiguous().permute(2, 1, 3, 0), wide[..., ::2]]


class Strided(unittest.TestCase):
    def setUp(self):
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.all = [numbers(rank) for rank in range(self.size)]

    def mine(self, i=0):
        made = views(numbers(self.rank).clone())[(self.rank + i) % 3]
        self.assertFalse(made.is_contiguous())
        return made

    def empty(self):
        return torch.zeros(SHAPE).to(memory_format=torch.channels_last)

    def test_in_place(self):
        total = sum(self.all)
        for i in range(3):
            x = self.mine(i)
            dist.all_reduce(x)
            torch.testing.assert_close(x, total)
            x = self.mine(i)
            strides = x.stride()
            dist.all_reduce(x, async_op=True).wait()
            self.assertEqual(x.stride(), strides)
            torch.testing.assert_close(x, total)
            x = self.mine(i)
            dist.broadcast(x, 1)
            torch.testing.assert_close(x, self.all[1])
            x = self.mine(i)
            dist.reduce(x, 2)
            torch.testing.assert_close(x, total if self.rank == 2 else self.all[self.rank])

    def test_the_rest_of_wide_tensors_stays(self):
        wide = torch.full((4, 6), -1.0)
        wide[:, ::2] = self.rank
        dist.all_reduce(wide[:, ::2])
        torch.testing.assert_close(wide[:, 1::2], torch.full((4, 3), -1.0))
        torch.testing.assert_close(wide[:, ::2], torch.full((4, 3), 3.0))

    def test_gathers(self):
        outputs = [self.empty() for _ in self.all]
        dist.all_gather(outputs, self.mine())
        torch.testing.assert_close(outputs, self.all)
        whole = torch.zeros(self.size * SHAPE[0], *SHAPE[1:])
        dist.all_gather_into_tensor(whole, self.mine())
        torch.testing.assert_close(whole, torch.cat(self.all))
        outputs = [self.empty() for _ in self.all]
        dist.gather(self.mine(), outputs if self.rank == 0 else None, 0)
        if self.rank == 0:
            torch.testing.assert_close(outputs, self.all)

    def test_scatters(self):
        x = self.empty()
        dist.scatter(x, [v.to(memory_format=torch.channels_last) for v in self.all]
                     if self.rank == 1 else None, 1)
        torch.testing.assert_close(x, self.all[self.rank])
        x = self.empty()
        dist.reduce_scatter(x, [views(numbers(r))[r % 3] for r in range(self.size)])
        torch.testing.assert_close(x, self.size * self.all[self.rank])
        x = self.empty()
        whole = torch.cat(self.all).to(memory_format=torch.channels_last)
        dist.reduce_scatter_tensor(x, whole)
        torch.testing.assert_close(x, self.size * self.all[self.rank])
        outputs = [self.empty() for _ in self.all]
        dist.all_to_all(outputs, [self.mine() + r for r in range(self.size)])
        torch.testing.assert_close(outputs, [each + self.rank for each in self.all])

    def test_messages(self):
        following, before = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        x = self.empty()
        sent = dist.isend(self.mine(), following)
        dist.irecv(x, before).wait()
        sent.wait()
        torch.testing.assert_close(x, self.all[before])

    def test_the_same_tensor_twice_in_one_operation(self):
        x = torch.full((5,), float(self.rank))
        dist.all_reduce_coalesced([x, x])
        torch.testing.assert_close(x, torch.full((5,), 3.0))
        y = torch.full((10,), float(self.rank))
        dist.all_reduce_coalesced([y[:6], y[3:]])
        torch.testing.assert_close(y, torch.full((10,), 3.0))

    def test_what_cannot_be_right_is_refused(self):
        with self.assertRaisesRegex(ValueError, "share memory.*clone"):
            dist.all_reduce(torch.ones(3, 1).expand(3, 4))
        whole = torch.zeros(2 * self.size)
        with self.assertRaisesRegex(ValueError, "overlap"):
            dist.all_gather([whole[:2], *[whole[1:3]] * (self.size - 1)], torch.ones(2))

    def test_a_model_in_channels_last(self):
        torch.manual_seed(self.rank)
        model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(),
                                    torch.nn.Linear(8 * 4 * 4, 2))
        model = model.to(memory_format=torch.channels_last)
        for p in model.parameters():
            dist.broadcast(p.data, 0)
        model = DistributedDataParallel(model)
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            images = torch.randn(4, 3, 6, 6).to(memory_format=torch.channels_last)
            model(images).square().mean().backward()
            optimizer.step()
        for p in model.parameters():
            others = [torch.empty(p.shape) for _ in self.all]
            dist.all_gather(others, p.detach())
            for other in others:
                self.assertTrue(torch.equal(other, others[0]))


if __name__ == "__main__":
    ranks.main(3, least=8)
