"""Reductions of numbers whose sums and products are rounded, compared with exact results in
float64. With three ranks the error stays within the bound for one rounding per operation."""

import unittest

import ranks
import torch
import torch.distributed as dist
from torch.distributed import ReduceOp

COUNTS = [1, 1000, 100003]  # Elements per rank; the last is cut into several pieces.
FACTOR = 1 / 3
ROOT = 1


def values(dtype, count, rank):
    """Values of both signs and magnitudes from 1/2 to 2, so that no product underflows."""
    generator = torch.Generator().manual_seed(rank)
    sizes = 0.5 + 1.5 * torch.rand(count, generator=generator)
    return torch.where(torch.rand(count, generator=generator) < 0.5, -sizes, sizes).to(dtype)


def truth_and_scale(inputs, reduction):
    """Returns the exact result, and the reference of an operation's relative error (Higham,
    Accuracy and Stability of Numerical Algorithms, 3.1 and 4.2)."""
    exact = torch.stack([tensor.double() for tensor in inputs])
    if reduction == ReduceOp.PRODUCT:
        return exact.prod(0), exact.prod(0).abs()
    factor = {ReduceOp.AVG: 1 / len(inputs), ReduceOp.PREMUL_SUM: FACTOR}.get(reduction, 1)
    return factor * exact.sum(0), factor * exact.abs().sum(0)


def bound(dtype, reduction, size):
    """Returns the bound of the relative error after several roundings of half an epsilon each."""
    roundings = size - 1  # One for each operation between two ranks' values,
    if reduction in (ReduceOp.AVG, ReduceOp.PREMUL_SUM):
        roundings += 2  # one for the factor, one for the multiplication.
    share = roundings * torch.finfo(dtype).eps / 2
    return share / (1 - share)


class Rounding(unittest.TestCase):
    def setUp(self):
        self.rank, self.size = dist.get_rank(), dist.get_world_size()

    def every(self, run):
        """run(inputs, op, count) returns a result, and its slice of the exact result."""
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            for reduction in (ReduceOp.SUM, ReduceOp.AVG, ReduceOp.PRODUCT, ReduceOp.PREMUL_SUM):
                for count in COUNTS:
                    with self.subTest(dtype=dtype, reduction=reduction, count=count):
                        self.check(run, dtype, reduction, count)

    def check(self, run, dtype, reduction, count):
        inputs = [values(dtype, self.size * count, rank) for rank in range(self.size)]
        op = ranks.premul_sum(FACTOR) if reduction == ReduceOp.PREMUL_SUM else reduction
        result, part = run(inputs, op, count)
        truth, scale = (whole[part] for whole in truth_and_scale(inputs, reduction))
        error = ((result.double() - truth).abs() / scale).max().item()
        self.assertLessEqual(error, bound(dtype, reduction, self.size))
        if count > 1:
            self.assertGreater(error, 0)  # Otherwise nothing was tested.

    def test_all_reduce(self):
        def run(inputs, op, _):
            mine = inputs[self.rank].clone()
            dist.all_reduce(mine, op=op)
            everywhere = [torch.empty_like(mine) for _ in range(self.size)]
            dist.all_gather(everywhere, mine)
            for other in everywhere:
                self.assertTrue(torch.equal(other, mine), "other bits than elsewhere")
            return mine, slice(None)
        self.every(run)

    def test_reduce(self):
        def run(inputs, op, _):
            mine = inputs[self.rank].clone()
            dist.reduce(mine, ROOT, op=op)
            if self.rank != ROOT:
                self.assertTrue(torch.equal(mine, inputs[self.rank]))
            dist.broadcast(mine, ROOT)
            return mine, slice(None)
        self.every(run)

    def test_reduce_scatter(self):
        def run(inputs, op, count):
            output = torch.empty(count, dtype=inputs[0].dtype)
            dist.reduce_scatter(output, list(inputs[self.rank].chunk(self.size)), op=op)
            return output, slice(self.rank * count, (self.rank + 1) * count)
        self.every(run)

    def test_reduce_scatter_tensor(self):
        def run(inputs, op, count):
            output = torch.empty(count, dtype=inputs[0].dtype)
            dist.reduce_scatter_tensor(output, inputs[self.rank].clone(), op=op)
            return output, slice(self.rank * count, (self.rank + 1) * count)
        self.every(run)


if __name__ == "__main__":
    ranks.main(3)
