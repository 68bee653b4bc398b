"""Tensors that are not contiguous, or that occur twice, as Gloo supports them."""

import unittest

import gradwire
import ranks
import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

SHAPE = (2, 3, 4, 5)


def numbers(rank):
    return torch.arange(120, dtype=torch.float32).reshape(SHAPE) + 1000 * rank


def views(values):
    """Returns the same values with different strides."""
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

    def negated(self, values):
        """Returns `values` as a lazily negated tensor."""
        tensor = torch._neg_view(-values)
        self.assertTrue(tensor.is_neg() and tensor.is_contiguous())
        return tensor

    def test_lazily_negated(self):
        """Uses the backend directly: torch.distributed resolves such tensors before it calls the
        backend, so that results in them are lost."""
        backend, following, before = gradwire.backend_of(), (self.rank + 1) % 3, (self.rank - 1) % 3
        total, mine = sum(self.all), numbers(self.rank)
        x = self.negated(mine)
        backend.allreduce([x]).wait()
        torch.testing.assert_close(x, total)
        x = self.negated(mine)
        backend.broadcast([x], dist.BroadcastOptions()).wait()
        torch.testing.assert_close(x, self.all[0])
        outputs = [self.negated(torch.zeros(SHAPE)) for _ in self.all]
        backend.allgather([outputs], [self.negated(mine)]).wait()
        torch.testing.assert_close(outputs, self.all)
        x = self.negated(torch.zeros(SHAPE))
        sent = backend.send([self.negated(mine)], following, 0)
        backend.recv([x], before, 0).wait()
        sent.wait()
        torch.testing.assert_close(x, self.all[before])

    def test_lazily_negated_inputs(self):
        outputs = [torch.zeros(SHAPE) for _ in self.all]
        dist.all_gather(outputs, self.negated(numbers(self.rank)))
        torch.testing.assert_close(outputs, self.all)
        x = torch.zeros(SHAPE)
        dist.reduce_scatter(x, [self.negated(each) for each in self.all])
        torch.testing.assert_close(x, self.size * self.all[self.rank])

    def test_lazily_conjugated(self):
        values = [torch.arange(4) + (rank + 1j) for rank in range(self.size)]
        backend, following, before = gradwire.backend_of(), (self.rank + 1) % 3, (self.rank - 1) % 3
        x = values[self.rank].conj().resolve_conj().conj()
        self.assertTrue(x.is_conj())
        backend.broadcast([x], dist.BroadcastOptions()).wait()
        torch.testing.assert_close(x, values[0])
        x = torch.zeros(4, dtype=torch.complex64)
        sent = backend.send([values[self.rank].conj()], following, 0)
        backend.recv([x], before, 0).wait()
        sent.wait()
        torch.testing.assert_close(x, values[before].conj().resolve_conj())

    def test_several_tensors_of_a_rank(self):
        group = dist.group.WORLD
        several = [self.mine(0), numbers(self.rank) + 1]
        group.allreduce(several).wait()
        for each in several:
            torch.testing.assert_close(each, 2 * sum(self.all) + self.size)
        for op, expected in ((dist.ReduceOp.MAX, 2 * self.size - 1), (dist.ReduceOp.MIN, 0)):
            pair = [torch.tensor([2 * self.rank]), torch.tensor([2 * self.rank + 1])]
            options = dist.AllreduceOptions()
            options.reduceOp = op
            result = group.allreduce(pair, options).get_future().wait()
            self.assertEqual([each.item() for each in result], [expected] * 2)
        pair = [torch.tensor([self.rank, 0]), torch.tensor([self.rank, 1])]
        options = dist.BroadcastOptions()
        options.rootRank, options.rootTensor = 1, 1
        group.broadcast(pair, options).wait()
        self.assertEqual([each.tolist() for each in pair], [[1, 1]] * 2)
        pair = [torch.tensor([self.rank, 0]), torch.tensor([self.rank, 1])]
        outputs = [[torch.zeros_like(pair[0]) for _ in range(2 * self.size)] for _ in pair]
        group.allgather(outputs, pair).wait()
        expected = [[rank, i] for rank in range(self.size) for i in range(2)]
        self.assertEqual([[each.tolist() for each in list] for list in outputs], [expected] * 2)

    def test_several_tensors_that_differ_are_refused(self):
        group, options = dist.group.WORLD, dist.AllreduceOptions()
        with self.assertRaisesRegex(ValueError, "one size and type"):
            group.allreduce([torch.ones(2), torch.ones(3)])
        options.reduceOp = dist.ReduceOp.AVG
        with self.assertRaisesRegex(RuntimeError, "AVG"):
            group.allreduce([torch.ones(2), torch.ones(2)], options)

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
