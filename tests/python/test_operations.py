"""Every operation x type x reduction of the backend, compared with the exact result. Three ranks.

Every rank knows the inputs of all ranks, and computes the expected result itself, in 64 bits."""

import functools
import operator
import unittest

import ranks
import torch
import torch.distributed as dist
from torch.distributed import ReduceOp

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64]
UNSIGNED = [torch.uint16, torch.uint32, torch.uint64]
COMPLEX = [torch.complex64, torch.complex128]
TYPES = [*FLOATS, *INTEGERS, *UNSIGNED, torch.bool, *COMPLEX]
# Types that can be moved, but not reduced.
BYTES = [torch.float8_e4m3fn]
ARITHMETIC = [ReduceOp.SUM, ReduceOp.AVG, ReduceOp.MIN, ReduceOp.MAX, ReduceOp.PRODUCT]
BITWISE = [ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR]
REDUCTIONS = [*ARITHMETIC, *BITWISE, ReduceOp.PREMUL_SUM]
COUNTS = [1, 12, 3000]
FACTOR = 0.5
ROOT = 1


def values(dtype, count, rank):
    """Small multiples of six: halves, and means of three, are exact in every type."""
    i = torch.arange(count) * 7 + rank * 5
    if dtype == torch.bool:
        return i % 3 == 0
    small = i % 4 if dtype in (torch.uint8, *UNSIGNED, *BYTES) else i % 5 - 2
    if dtype in COMPLEX:
        return torch.complex(6.0 * small, 6.0 * (i % 3)).to(dtype)
    return (6 * small).to(dtype)


def supported(dtype, reduction):
    if dtype in BYTES:
        return False
    if dtype in UNSIGNED:  # Reductions that do not depend on the sign.
        return reduction in (ReduceOp.SUM, ReduceOp.PRODUCT, *BITWISE)
    if dtype in COMPLEX:
        return reduction in (ReduceOp.SUM, ReduceOp.AVG)
    if reduction == ReduceOp.PREMUL_SUM:
        return dtype in FLOATS
    if dtype == torch.bool:
        return reduction != ReduceOp.AVG
    return reduction in ARITHMETIC or dtype in INTEGERS


def reduced(tensors, reduction):
    """Returns the exact result, in Python's arithmetic on the widest type."""
    dtype = tensors[0].dtype
    if dtype == torch.bool:
        by = {ReduceOp.SUM: operator.or_, ReduceOp.MAX: operator.or_, ReduceOp.BOR: operator.or_,
              ReduceOp.BXOR: operator.xor}.get(reduction, operator.and_)
        return functools.reduce(by, tensors)
    wide = torch.complex128 if dtype in COMPLEX else (
        torch.float64 if dtype in FLOATS else torch.int64)
    by = {ReduceOp.MIN: torch.minimum, ReduceOp.MAX: torch.maximum, ReduceOp.PRODUCT: operator.mul,
          ReduceOp.BAND: operator.and_, ReduceOp.BOR: operator.or_,
          ReduceOp.BXOR: operator.xor}.get(reduction, operator.add)
    result = functools.reduce(by, [tensor.to(wide) for tensor in tensors])
    if reduction == ReduceOp.AVG:
        result = result / len(tensors) if wide != torch.int64 else (
            torch.div(result, len(tensors), rounding_mode="trunc"))
    if reduction == ReduceOp.PREMUL_SUM:
        result = result * FACTOR
    return result.to(dtype)


def op_of(reduction):
    return ranks.premul_sum(FACTOR) if reduction == ReduceOp.PREMUL_SUM else reduction


class Case(unittest.TestCase):
    def setUp(self):
        self.rank, self.size = dist.get_rank(), dist.get_world_size()

    def inputs(self, dtype, count):
        return [values(dtype, count, rank) for rank in range(self.size)]

    def same(self, got, expected, what=""):
        bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
        raw = bits.get(got.element_size())
        self.assertEqual(got.dtype, expected.dtype)
        if got.dtype in (*UNSIGNED, *BYTES):
            got, expected = got.view(raw), expected.view(raw)
        self.assertTrue(torch.equal(got, expected), f"{what}: {got} instead of {expected}")


class Reductions(Case):
    def every(self, run):
        """Calls run(dtype, reduction, count, inputs, truth) for all supported combinations."""
        for dtype in TYPES:
            for reduction in REDUCTIONS:
                if not supported(dtype, reduction):
                    continue
                for count in COUNTS:
                    inputs = self.inputs(dtype, count * self.size)
                    with self.subTest(dtype=dtype, reduction=reduction, count=count):
                        run(op_of(reduction), inputs, reduced(inputs, reduction), count)

    def test_all_reduce(self):
        def run(op, inputs, truth, _):
            mine = inputs[self.rank].clone()
            dist.all_reduce(mine, op=op)
            self.same(mine, truth)
        self.every(run)

    def test_reduce(self):
        def run(op, inputs, truth, _):
            mine = inputs[self.rank].clone()
            dist.reduce(mine, ROOT, op=op)
            self.same(mine, truth if self.rank == ROOT else inputs[self.rank])
        self.every(run)

    def test_reduce_scatter(self):
        def run(op, inputs, truth, count):
            output = torch.zeros_like(truth[:count])
            dist.reduce_scatter(output, list(inputs[self.rank].chunk(self.size)), op=op)
            self.same(output, truth.chunk(self.size)[self.rank])
        self.every(run)

    def test_reduce_scatter_tensor(self):
        def run(op, inputs, truth, count):
            output = torch.zeros_like(truth[:count])
            mine = inputs[self.rank].clone()
            dist.reduce_scatter_tensor(output, mine, op=op)
            self.same(output, truth.chunk(self.size)[self.rank])
            self.same(mine, inputs[self.rank], "the input")
        self.every(run)

    def test_coalesced(self):
        def run(op, inputs, truth, count):
            both = [inputs[self.rank].clone(), inputs[self.rank][:count].clone()]
            with dist._coalescing_manager():
                for tensor in both:
                    dist.all_reduce(tensor, op=op)
            self.same(both[0], truth)
            self.same(both[1], truth[:count])
            outputs = [torch.zeros_like(truth[:count]) for _ in range(2)]
            with dist._coalescing_manager():
                for output in outputs:
                    dist.reduce_scatter_tensor(output, inputs[self.rank], op=op)
            for output in outputs:
                self.same(output, truth.chunk(self.size)[self.rank])
        self.every(run)

    def test_parts_of_different_sizes(self):
        sizes = [3, 0, 5][:self.size]
        inputs = self.inputs(torch.float32, sum(sizes))
        output = torch.zeros(sizes[self.rank])
        dist.reduce_scatter(output, list(inputs[self.rank].split(sizes)))
        self.same(output, reduced(inputs, ReduceOp.SUM).split(sizes)[self.rank])

    def test_sparse(self):
        """Gradients of an embedding: shared rows, rows of one rank only, a rank with none."""
        def rows(rank, dtype):
            index = torch.tensor([[0, 2 * rank, 2 * rank, 1]])[:, :2 * rank]
            return torch.sparse_coo_tensor(index, values(dtype, 2 * rank * 4, rank).view(-1, 4),
                                           (9, 4))

        for dtype in (torch.float32, torch.float64, torch.int64):
            for op in (ReduceOp.SUM, ReduceOp.AVG) if dtype != torch.int64 else (ReduceOp.SUM,):
                truth = reduced([rows(r, dtype).to_dense() for r in range(self.size)], op)
                mine = rows(self.rank, dtype)
                dist.all_reduce(mine, op=op)
                self.assertTrue(mine.is_sparse and mine.is_coalesced())
                self.same(mine.to_dense(), truth)
                again = rows(self.rank, dtype)
                options = dist.AllreduceOptions()
                options.reduceOp = op
                future = dist.group.WORLD.allreduce([again], options).get_future()
                self.same(future.wait()[0].to_dense(), truth)
        with self.assertRaisesRegex(ValueError, "different sparse shape than on rank"):
            dist.all_reduce(torch.eye(3 + self.rank).to_sparse())
        with self.assertRaisesRegex(RuntimeError, "sparse tensors support only SUM and AVG"):
            dist.all_reduce(torch.eye(3).to_sparse(), op=ReduceOp.MAX)

    def test_means_of_integers_truncate_towards_zero(self):
        tensor = torch.tensor([-7, 7]) if self.rank == 0 else torch.zeros(2, dtype=torch.int64)
        dist.all_reduce(tensor, op=ReduceOp.AVG)
        self.same(tensor, torch.tensor([-2, 2]))

    def test_sums_and_products_of_unsigned_integers_wrap_around(self):
        for dtype, bits in zip(UNSIGNED, (16, 32, 64)):
            most = 2 ** bits - 2
            for op, truth in ((ReduceOp.SUM, most * self.size), (ReduceOp.PRODUCT, most ** 3)):
                tensor = torch.tensor([most], dtype=dtype)
                dist.all_reduce(tensor, op=op)
                self.assertEqual(tensor.item(), truth % 2 ** bits, (dtype, op))

    def test_a_factor_that_is_a_tensor(self):
        inputs = self.inputs(torch.float32, self.size)
        truth = reduced(inputs, ReduceOp.PREMUL_SUM)
        for factor in (torch.tensor(FACTOR), torch.tensor([FACTOR], dtype=torch.float64)):
            op = ranks.premul_sum(factor)
            mine = inputs[self.rank].clone()
            dist.all_reduce(mine, op=op)
            self.same(mine, truth)
            mine = inputs[self.rank].clone()
            dist.reduce(mine, ROOT, op=op)
            self.same(mine, truth if self.rank == ROOT else inputs[self.rank])
            output = torch.zeros(1)
            dist.reduce_scatter(output, list(inputs[self.rank].chunk(self.size)), op=op)
            self.same(output, truth[self.rank:self.rank + 1])

    def test_what_cannot_be_reduced_is_an_error_that_says_so(self):
        for dtype in [*TYPES, *BYTES]:
            for reduction in REDUCTIONS:
                if supported(dtype, reduction):
                    continue
                with self.subTest(dtype=dtype, reduction=reduction):
                    group = dist.group.WORLD  # Python refuses some of them itself.
                    options = dist.AllreduceOptions()
                    options.reduceOp = op_of(reduction)
                    with self.assertRaisesRegex((ValueError, RuntimeError),
                                                f"rank {self.rank}: all_reduce.*cannot reduce"):
                        group.allreduce([values(dtype, 4, 0)], options).wait()


class Movements(Case):
    def every(self, run):
        for dtype in [*TYPES, *BYTES]:
            for count in COUNTS:
                with self.subTest(dtype=dtype, count=count):
                    run(dtype, count, self.inputs(dtype, count))

    def test_broadcast(self):
        def run(_dtype, _count, inputs):
            mine = inputs[self.rank].clone()
            dist.broadcast(mine, ROOT)
            self.same(mine, inputs[ROOT])
        self.every(run)

    def test_all_gather(self):
        def run(_dtype, _count, inputs):
            outputs = [torch.empty_like(tensor) for tensor in inputs]
            dist.all_gather(outputs, inputs[self.rank])
            for output, truth in zip(outputs, inputs):
                self.same(output, truth)
        self.every(run)

    def test_all_gather_of_different_sizes(self):
        truth = [values(torch.int64, 2 * rank, rank) for rank in range(self.size)]
        outputs = [torch.empty_like(tensor) for tensor in truth]
        dist.all_gather(outputs, truth[self.rank])
        for output, right in zip(outputs, truth):
            self.same(output, right)

    def test_all_gather_into_tensor(self):
        def run(_dtype, _count, inputs):
            truth = torch.stack(inputs)
            for shape in (truth.shape, (truth.numel(),)):
                output = torch.empty(shape, dtype=truth.dtype)
                dist.all_gather_into_tensor(output, inputs[self.rank])
                self.same(output.view(truth.shape), truth)
            outputs = [torch.empty_like(truth) for _ in range(2)]
            with dist._coalescing_manager():
                for output in outputs:
                    dist.all_gather_into_tensor(output, inputs[self.rank])
            for output in outputs:
                self.same(output, truth)
        self.every(run)

    def test_all_gather_coalesced(self):
        inputs = [self.inputs(torch.float32, 4), self.inputs(torch.int64, 7)]
        outputs = [[torch.empty_like(kind[0]) for kind in inputs] for _ in range(self.size)]
        dist.group.WORLD.allgather_coalesced(outputs, [kind[self.rank] for kind in inputs]).wait()
        for rank, output in enumerate(outputs):
            for tensor, kind in zip(output, inputs):
                self.same(tensor, kind[rank])

    if hasattr(dist, "gather_single"):  # PyTorch 2.14.
        def test_gather_single(self):
            def run(_dtype, _count, inputs):
                whole = torch.empty((self.size, *inputs[0].shape), dtype=inputs[0].dtype)
                dist.gather_single(inputs[self.rank], whole if self.rank == ROOT else None,
                                   dst=ROOT)
                if self.rank == ROOT:
                    for output, truth in zip(whole, inputs):
                        self.same(output, truth)
            self.every(run)

    def test_gather(self):
        def run(_dtype, _count, inputs):
            outputs = [torch.empty_like(tensor) for tensor in inputs]
            dist.gather(inputs[self.rank], outputs if self.rank == ROOT else None, dst=ROOT)
            if self.rank == ROOT:
                for output, truth in zip(outputs, inputs):
                    self.same(output, truth)
        self.every(run)

    def test_scatter(self):
        def run(_dtype, _count, inputs):
            output = torch.empty_like(inputs[0])
            dist.scatter(output, list(inputs) if self.rank == ROOT else None, src=ROOT)
            self.same(output, inputs[self.rank])
        self.every(run)

    def test_all_to_all(self):
        """Rank a sends a + 2 b elements to rank b."""
        def run(dtype, _count, _inputs):
            sent = [values(dtype, self.rank + 2 * to, self.rank) for to in range(self.size)]
            truth = [values(dtype, of + 2 * self.rank, of) for of in range(self.size)]
            outputs = [torch.empty_like(tensor) for tensor in truth]
            dist.all_to_all(outputs, sent)
            for output, right in zip(outputs, truth):
                self.same(output, right)
        self.every(run)

    def test_all_to_all_single(self):
        def run(dtype, count, _inputs):
            whole = [values(dtype, count * self.size, rank).view(self.size, count)
                     for rank in range(self.size)]
            output = torch.empty_like(whole[0])
            dist.all_to_all_single(output, whole[self.rank])
            self.same(output, torch.stack([w[self.rank] for w in whole]))
        self.every(run)

    def test_all_to_all_single_with_splits(self):
        def run(dtype, count, _inputs):
            rows = [[1 + (rank + to) % 2 for to in range(self.size)] for rank in range(self.size)]
            whole = [values(dtype, count * sum(rows[rank]), rank).view(-1, count)
                     for rank in range(self.size)]
            into = [rows[rank][self.rank] for rank in range(self.size)]
            output = torch.empty(sum(into), count, dtype=dtype)
            dist.all_to_all_single(output, whole[self.rank], into, rows[self.rank])
            truth = [whole[rank].view(-1).view(torch.uint8).view(sum(rows[rank]), -1)
                     .split(rows[rank])[self.rank] for rank in range(self.size)]
            self.same(output.view(torch.uint8), torch.cat(truth))
        self.every(run)


class Messages(Case):
    def test_a_ring_of_messages(self):
        right, left = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        for dtype in [*TYPES, *BYTES]:
            inputs = self.inputs(dtype, 100)
            received = torch.empty_like(inputs[0])
            work = dist.isend(inputs[self.rank], right, tag=3)
            dist.recv(received, left, tag=3)
            work.wait()
            self.same(received, inputs[left])

    def test_tags_tell_messages_apart(self):
        if self.rank == 0:
            for tag in (1, 2):
                dist.send(torch.tensor([float(tag)]), 1, tag=tag)
        elif self.rank == 1:
            second, first = torch.zeros(1), torch.zeros(1)
            late = dist.irecv(second, 0, tag=2)
            dist.recv(first, 0, tag=1)
            late.wait()
            self.assertEqual([first.item(), second.item()], [1, 2])

    def test_receives_from_whichever_rank(self):
        if self.rank == 0:
            sources = set()
            for _ in range(self.size - 1):
                tensor = torch.zeros(1)
                source = dist.recv(tensor)
                self.assertEqual(tensor.item(), source)
                sources.add(source)
            self.assertEqual(sources, set(range(1, self.size)))
        else:
            dist.send(torch.tensor([float(self.rank)]), 0)

    def test_batches(self):
        inputs = self.inputs(torch.float32, 50000)
        outputs = [torch.empty_like(tensor) for tensor in inputs]
        batch = [dist.P2POp(dist.isend, inputs[self.rank], rank) for rank in range(self.size)]
        batch += [dist.P2POp(dist.irecv, outputs[rank], rank) for rank in range(self.size)]
        for work in dist.batch_isend_irecv(batch):
            work.wait()
        for rank in range(self.size):
            self.same(outputs[rank], inputs[rank])

    def test_to_the_rank_itself(self):
        """Its send completes before the receive; V-shaped stages of PyTorch 2.11 need it."""
        group = dist.group.WORLD
        for dtype in [*TYPES, *BYTES]:
            early, late = self.inputs(dtype, 100)[:2]
            received, later, last = (torch.empty_like(early) for _ in range(3))
            waiting = group.recv([received], self.rank, 3)
            group.send([early], self.rank, 3).wait()
            group.send([late], self.rank, 3).wait()
            waiting.wait()
            group.recv([later], self.rank, 3).wait()
            group.send([late], self.rank, 4).wait()
            group.recv_anysource([last], 4).wait()
            self.same(received, early)
            self.same(later, late)
            self.same(last, late)

    def test_objects(self):
        gathered = [None] * self.size
        dist.all_gather_object(gathered, {"rank": self.rank, "text": "x" * self.rank})
        self.assertEqual(gathered, [{"rank": r, "text": "x" * r} for r in range(self.size)])
        something = [{"a": 1} if self.rank == ROOT else None]
        dist.broadcast_object_list(something, ROOT)
        self.assertEqual(something, [{"a": 1}])
        mine = [None]
        dist.scatter_object_list(mine, [10, 11, 12] if self.rank == 0 else None, 0)
        self.assertEqual(mine, [10 + self.rank])
        all_of = [None] * self.size if self.rank == ROOT else None
        dist.gather_object(self.rank, all_of, ROOT)
        self.assertIn(all_of, (None, list(range(self.size))))


if __name__ == "__main__":
    ranks.main(3)
