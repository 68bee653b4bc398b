"""Means whose sums exceed the range of the type. Three ranks."""

import unittest

import ranks
import torch
import torch.distributed as dist

LARGE = 40000.0  # The sum of three exceeds float16.


def large(elements=4):
    return torch.full((elements,), LARGE, dtype=torch.float16)


class Averages(unittest.TestCase):
    def assert_mean(self, result):
        torch.testing.assert_close(result, large(result.numel()), rtol=2 ** -10, atol=0)

    def test_all_reduce(self):
        tensor = large()
        dist.all_reduce(tensor, op=dist.ReduceOp.AVG)
        self.assert_mean(tensor)

    def test_all_reduce_coalesced(self):
        tensors = [large(), large(1)]
        dist.all_reduce_coalesced(tensors, op=dist.ReduceOp.AVG)
        for tensor in tensors:
            self.assert_mean(tensor)

    def test_reduce(self):
        tensor = large()
        dist.reduce(tensor, 1, op=dist.ReduceOp.AVG)
        self.assert_mean(tensor)  # Unchanged on the other ranks.

    def test_reduce_scatter(self):
        output = torch.zeros(2, dtype=torch.float16)
        given = large(2 * dist.get_world_size())
        dist.reduce_scatter_tensor(output, given, op=dist.ReduceOp.AVG)
        self.assert_mean(output)
        dist.reduce_scatter(output.zero_(), list(given.chunk(dist.get_world_size())),
                            op=dist.ReduceOp.AVG)
        self.assert_mean(output)
        self.assert_mean(given)

    def test_sums_are_those_of_the_type(self):
        tensor = large()
        dist.all_reduce(tensor)
        self.assertTrue(tensor.isinf().all())


if __name__ == "__main__":
    ranks.main(3)
