"""Programs whose ranks leave while others still need them, or read their tensors after a barrier.
They are correct over Gloo and NCCL, and so over gradwire. Each runs as new processes."""

import textwrap
import unittest

import fork_server

START = """
import datetime, os, sys
import torch, torch.distributed as dist, gradwire
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gradwire", init_method="file://" + os.environ["STORE"], rank=rank,
                        world_size=size, timeout=datetime.timedelta(seconds=60))
x = torch.full((1_000_000,), float(rank + 1))
"""


class Leaving(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = fork_server.ForkServer()
        cls.addClassCleanup(cls.server.close)

    def run_ranks(self, count, body):
        return self.server.run(count, START + textwrap.dedent(body))

    def check(self, count, body):
        for rank, (status, output) in enumerate(self.run_ranks(count, body)):
            self.assertEqual(status, 0, f"rank {rank} of {count}:\n{output}")

    def test_only_the_root_waits(self):
        for operation in ("dist.reduce(x, 0, async_op=True)",
                          "dist.all_reduce(x, async_op=True)",
                          "dist.gather(x, [torch.empty_like(x) for _ in range(size)] "
                          "if rank == 0 else None, 0, async_op=True)"):
            for end in ("dist.destroy_process_group()", "sys.exit(0)"):
                with self.subTest(operation=operation, end=end):
                    self.check(3, f"""
                        work = {operation}
                        if rank == 0:
                            work.wait()
                        {end}
                    """)

    def test_works_that_are_dropped(self):
        for keep in (True, False):
            with self.subTest(keep=keep):
                self.check(4, f"""
                    tensors = [torch.full((100_000,), float(rank)) for _ in range(50)]
                    works = [dist.all_reduce(each, async_op=True) for each in tensors]
                    if not {keep}:
                        del works
                    dist.barrier()
                    for each in tensors:
                        assert (each == 6).all(), each
                    dist.destroy_process_group()
                """)

    def test_a_barrier_is_a_fence(self):
        self.check(4, """
            for _ in range(50):
                x = torch.ones(500_000)
                work = dist.all_reduce(x, async_op=True)
                dist.barrier()
                assert (x == size).all(), "a half-made sum"
            group = dist.new_group()
            y = torch.ones(500_000)
            work = dist.all_reduce(y, group=group, async_op=True)
            gradwire.backend_of(group).monitored_barrier(datetime.timedelta(seconds=30))
            assert (y == size).all(), "a half-made sum"
            dist.destroy_process_group()
        """)

    def test_the_end_of_a_group_is_a_fence(self):
        self.check(4, """
            for _ in range(5):
                group = dist.new_group()
                y = torch.ones(500_000)
                work = dist.all_reduce(y, group=group, async_op=True)
                dist.destroy_process_group(group)
                assert (y == size).all(), "a half-made sum"
            z = torch.ones(500_000)
            work = dist.all_reduce(z, async_op=True)
            dist.destroy_process_group()
            assert (z == size).all(), "a half-made sum"
        """)

    def test_objects_come_between_unfinished_collectives(self):
        self.check(3, """
            y = torch.ones(500_000)
            work = dist.all_reduce(y, async_op=True)
            sparse = torch.sparse_coo_tensor([[rank]], [1.0], (size,))
            sum_of_sparse = dist.all_reduce(sparse, async_op=True)
            objects = [None] * size
            dist.all_gather_object(objects, {"rank": rank})
            assert objects == [{"rank": each} for each in range(size)], objects
            dist.barrier()
            assert (y == size).all(), "a half-made sum"
            assert sparse.to_dense().tolist() == [1.0] * size, "a half-made sum"
            dist.destroy_process_group()
        """)

    def test_lists_are_there_after_a_barrier(self):
        for end in ("dist.barrier()", "dist.monitored_barrier()", "dist.destroy_process_group()"):
            for keep in (True, False):
                with self.subTest(end=end, keep=keep):
                    self.check(3, f"""
                        y = torch.full((50_000,), float(rank))
                        lists = [[torch.empty_like(y) for _ in range(size)] for _ in range(4)]
                        strided = torch.full((50_000, 2), 1.0)[:, 0]
                        works = [dist.all_gather(each, y, async_op=True) for each in lists]
                        works += [dist.all_reduce(strided, async_op=True)]
                        if not {keep}:
                            del works
                        {end}
                        for each in lists:
                            assert [t.unique().tolist() for t in each] == [[0], [1], [2]], each
                        assert (strided == size).all(), strided
                        if dist.is_initialized():
                            dist.destroy_process_group()
                    """)

    def test_a_barrier_does_not_wait_for_messages(self):
        self.check(2, """
            if rank == 0:
                work = dist.isend(x, 1)
            dist.barrier()
            if rank == 1:
                dist.recv(x, 0)
                assert (x == 1).all()
            else:
                work.wait()
            dist.destroy_process_group()
        """)

    def test_an_exception_is_no_hang(self):
        body = """
            work = dist.all_reduce(x, async_op=True)
            if rank == 0:
                {fails}
            work.wait()
        """
        uncaught = "raise RuntimeError('the loss is not a number')"
        caught = """
                try:
                    raise RuntimeError('the loss is not a number')
                finally:
                    dist.destroy_process_group()"""
        # Rank 1 never joins the operation, but stays until rank 0 has left.
        alone = """
            if rank == 1:
                there = torch.empty(1)
                try:
                    dist.recv(there, 0)
                except RuntimeError as error:
                    print(error)
                    sys.exit(3)
        """
        for fails in (uncaught, caught):
            with self.subTest(fails=fails):
                results = self.run_ranks(
                    2, textwrap.dedent(alone) + textwrap.dedent(body.format(fails=fails)))
                self.assertEqual(results[0][0], 1, results[0][1])
                self.assertIn("the loss is not a number", results[0][1])
                self.assertEqual(results[1][0], 3, results[1][1])
                self.assertIn("rank 0", results[1][1])


if __name__ == "__main__":
    unittest.main(verbosity=2)
