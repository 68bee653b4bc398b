"""Arguments that an operation does not support raise an error that names rank, operation and
argument, before anything is sent, so that the group remains usable. Three ranks."""

import unittest

import gradwire
import ranks
import torch
import torch.distributed as dist

ROWS = 3  # Rows of one rank's tensor; every tensor has two columns.


def right(rows=ROWS):
    return torch.ones(rows, 2)


def elsewhere(rows=ROWS):
    return torch.ones(rows, 2, device="meta")


def of_another_type(rows=ROWS):
    return torch.ones(rows, 2, dtype=torch.float64)


def rooted(options, root):
    options.rootRank = root
    return options


class Case(unittest.TestCase):
    def setUp(self):
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        # PyTorch's functions check some arguments themselves, and require a backend of the device.
        self.group = gradwire.backend_of()

    def tearDown(self):
        """The group remains usable: had anything been sent, the ranks would disagree."""
        tensor = torch.ones(1)
        dist.all_reduce(tensor)
        self.assertEqual(tensor.item(), self.size)

    def refuses(self, call, words, error=ValueError):
        """`words` contains {rank} for this rank."""
        with self.assertRaisesRegex(error, words.format(rank=f"rank {self.rank}")):
            call()


class Tensors(Case):
    """Each operation x each of its arguments x each mistake. Every call takes a function that
    creates the invalid argument."""

    def check(self, calls, wrong, words):
        for argument, call in calls:
            with self.subTest(argument=argument, wrong=wrong.__name__):
                self.refuses(lambda call=call: call(wrong), "{rank}: " + argument + ".*" + words)

    def list_with(self, make):
        """Returns one tensor for each rank, the last of them made by `make`."""
        return [right() for _ in range(self.size - 1)] + [make()]

    def alone(self):
        """Operations that support tensors of any type."""
        group, peer = self.group, (self.rank + 1) % self.size
        return [
            ("broadcast, argument 'tensors.0.'",
             lambda w: group.broadcast([w()], dist.BroadcastOptions())),
            ("all_reduce, argument 'tensors.0.'", lambda w: group.allreduce([w()])),
            ("all_reduce_coalesced, argument 'tensors.1.'",
             lambda w: group.allreduce_coalesced([right(), w()])),
            ("reduce, argument 'tensors.0.'", lambda w: group.reduce([w()], dist.ReduceOptions())),
            ("send, argument 'tensors.0.'", lambda w: group.send([w()], peer, 0)),
            ("recv, argument 'tensors.0.'", lambda w: group.recv([w()], peer, 0)),
            ("recv_any_source, argument 'tensors.0.'", lambda w: group.recv_anysource([w()], 0)),
        ]

    def together(self):
        """Operations whose tensors must all have one type."""
        return [*self.gathers(), *self.reduce_scatters(), *self.exchanges()]

    def gathers(self):
        group, some, whole = self.group, self.list_with(right), self.size * ROWS
        # Only roots have lists, so each rank is the root of its own operation.
        gather = rooted(dist.GatherOptions(), self.rank)
        scatter = rooted(dist.ScatterOptions(), self.rank)
        return [
            ("all_gather, argument 'outputs.0.'", lambda w: group.allgather([some], [w()])),
            ("all_gather, argument 'outputs.0.'",
             lambda w: group.allgather([self.list_with(w)], [right()])),
            ("all_gather, argument 'outputs.1.'", lambda w: group.allgather_coalesced(
                [[right(), w()] for _ in some], [right(), right()])),
            ("all_gather, argument '(in|out)put'",
             lambda w: group._allgather_base(right(whole), w())),
            ("all_gather, argument 'output'", lambda w: group._allgather_base(w(whole), right())),
            ("gather, argument '(in|out)puts", lambda w: group.gather([some], [w()], gather)),
            ("scatter, argument '(in|out)puts", lambda w: group.scatter([w()], [some], scatter)),
        ]

    def reduce_scatters(self):
        group, some, whole = self.group, self.list_with(right), self.size * ROWS
        options = dist.ReduceScatterOptions()
        return [
            ("reduce_scatter, argument '(in|out)puts",
             lambda w: group.reduce_scatter([w()], [some], options)),
            ("reduce_scatter, argument 'inputs'",
             lambda w: group.reduce_scatter([right()], [self.list_with(w)], options)),
            ("reduce_scatter, argument '(in|out)put'",
             lambda w: group._reduce_scatter_base(w(), right(whole), options)),
            ("reduce_scatter, argument 'input'",
             lambda w: group._reduce_scatter_base(right(), w(whole), options)),
        ]

    def exchanges(self):
        some = self.list_with(right)
        return [("all_to_all, argument 'outputs'",
                 lambda w: self.group.alltoall(self.list_with(w), some))]

    def exchanged(self):
        """Inputs of all_to_all, and the output of its single-tensor form."""
        group, some, whole = self.group, self.list_with(right), self.size * ROWS
        return [
            ("all_to_all, argument 'inputs'", lambda w: group.alltoall(some, self.list_with(w))),
            ("all_to_all, argument 'input'",
             lambda w: group.alltoall_base(right(whole), w(whole), [], [])),
            ("all_to_all, argument 'output'",
             lambda w: group.alltoall_base(w(whole), right(whole), [], [])),
        ]

    def flat_coalesced(self):
        """Operations of the group only; PyTorch itself converts their tensors for the backend."""
        group, whole = dist.group.WORLD, self.size * ROWS
        return [
            ("all_gather_into_tensor_coalesced, argument 'outputs'",
             lambda w: group.allgather_into_tensor_coalesced([right(whole)], [w()])),
            ("all_gather_into_tensor_coalesced, argument 'outputs'",
             lambda w: group.allgather_into_tensor_coalesced([w(whole)], [right()])),
            ("reduce_scatter, argument 'input'", lambda w: group.reduce_scatter_tensor_coalesced(
                [right()], [w(whole)], dist.ReduceScatterOptions())),
            ("reduce_scatter, argument '(in|out)put'",
             lambda w: group.reduce_scatter_tensor_coalesced(
                 [w()], [right(whole)], dist.ReduceScatterOptions())),
        ]

    def copied(self):
        """Lists of roots: they are copied, so they need not be contiguous."""
        group, each = self.group, range(self.size)
        return [
            ("gather, argument 'outputs'", lambda w: group.gather(
                [[w() for _ in each]], [right()], rooted(dist.GatherOptions(), self.rank))),
            ("scatter, argument 'inputs'", lambda w: group.scatter(
                [right()], [[w() for _ in each]], rooted(dist.ScatterOptions(), self.rank))),
        ]

    def test_elsewhere(self):
        self.check([*self.alone(), *self.together(), *self.exchanged(), *self.copied()], elsewhere,
                   "on meta; .*move it")
        options = dist.BroadcastOptions()
        self.refuses(lambda: self.group.broadcast([torch.eye(3).to_sparse()], options),
                     "{rank}: broadcast, argument 'tensors.0.': the layout is Sparse.*to_dense")

    def test_one_of_a_list_elsewhere(self):
        some, mixed = self.list_with(right), self.list_with(elsewhere)
        for operation, call in [
                ("gather, argument 'outputs'", lambda: self.group.gather(
                    [mixed], [right()], rooted(dist.GatherOptions(), self.rank))),
                ("scatter, argument 'inputs'", lambda: self.group.scatter(
                    [right()], [mixed], rooted(dist.ScatterOptions(), self.rank))),
                ("all_to_all, argument 'inputs'", lambda: self.group.alltoall(some, mixed))]:
            self.refuses(call, "{rank}: " + operation + ".*on meta; .*move it")

    def test_of_another_type(self):
        self.check([*self.together(), *self.copied(), *self.flat_coalesced()], of_another_type,
                   "Double")
        for _, call in self.exchanged():
            self.refuses(lambda call=call: call(of_another_type),
                         "{rank}: all_to_all, argument '(in|out)puts?'.*Double")

    def test_lists_of_roots_need_not_be_contiguous(self):
        whole = torch.arange(2.0 * ROWS).view(2, ROWS).t()
        parts = [(whole + rank).contiguous().t().contiguous().t() for rank in range(self.size)]
        self.assertFalse(parts[0].is_contiguous())
        outputs = [torch.empty(2, ROWS).t() for _ in parts]
        dist.gather(parts[self.rank].contiguous(), outputs if self.rank == 0 else None, dst=0)
        if self.rank == 0:
            for output, part in zip(outputs, parts):
                self.assertTrue(torch.equal(output, part))
        output = torch.empty(ROWS, 2)
        dist.scatter(output, parts if self.rank == 0 else None, src=0)
        self.assertTrue(torch.equal(output, parts[self.rank]))

    def test_lists_may_be_of_inference_mode(self):
        for sizes in ([3] * self.size, [2 + rank for rank in range(self.size)]):
            with torch.inference_mode():
                outputs = [torch.empty(size) for size in sizes]
                mine = torch.full((sizes[self.rank],), 1.0 + self.rank)
                work = dist.all_gather(outputs, mine, async_op=True)
                future = work.get_future()  # Its thread is not in that mode.
            future.wait()
            work.wait()
            self.assertTrue(work.is_success())
            for rank, output in enumerate(outputs):
                self.assertTrue(torch.equal(output, torch.full((sizes[rank],), 1.0 + rank)))


class Shapes(Case):
    def test_that_do_not_fit(self):
        three = [torch.zeros(2) for _ in range(self.size)]
        refuses = self.refuses
        refuses(lambda: dist.all_gather(three, torch.ones(3)),
                "{rank}: all_gather, argument 'outputs.*2 elements")
        refuses(lambda: dist.all_gather(three[:1], torch.ones(2)),
                "{rank}: all_gather, argument 'outputs.*3 ranks, but has 1")
        refuses(lambda: dist.all_gather_into_tensor(torch.zeros(5), torch.ones(2)),
                "{rank}: all_gather, argument 'output': 5 elements of Float are not 3 times 2")
        refuses(lambda: dist.reduce_scatter_tensor(torch.zeros(5), torch.ones(2)),
                "{rank}: reduce_scatter, argument 'input'")
        refuses(lambda: dist.all_to_all_single(torch.zeros(4), torch.ones(4)),
                "{rank}: all_to_all, argument 'output': has 4 rows")
        refuses(lambda: dist.all_to_all_single(torch.zeros(3), torch.ones(3), [1, 1, 5], [1, 1, 1]),
                "{rank}: all_to_all, argument 'output'.*sum to 7")


class Ranks(Case):
    def test_that_there_are_not(self):
        options = rooted(dist.BroadcastOptions(), 7)
        self.refuses(lambda: self.group.broadcast([right()], options),
                     "root rank: 7; ranks are 0 to 2")
        self.refuses(lambda: self.group.send([right()], 7, 0), "peer rank: 7; ranks are 0 to 2")
        self.refuses(lambda: self.group.send([right()], (self.rank + 1) % 3, -1), "tag -1 .*within")


if __name__ == "__main__":
    ranks.main(3)
