"""Groups, failures, futures and waiting. Three ranks. Tests that break a group make their own."""

import datetime
import os
import re
import subprocess
import sys
import threading
import unittest

import gradwire
import ranks
import torch
import torch.distributed as dist

SHORT = datetime.timedelta(seconds=0.5)


class Case(unittest.TestCase):
    def setUp(self):
        self.rank, self.size = dist.get_rank(), dist.get_world_size()

    def tearDown(self):
        dist.barrier()  # Keeps the ranks in step.


class Groups(Case):
    def test_some_ranks_only(self):
        group = dist.new_group([0, 2])
        tensor = torch.tensor([float(self.rank)])
        if self.rank != 1:
            dist.all_reduce(tensor, group=group)
            self.assertEqual(tensor.item(), 2)
            dist.destroy_process_group(group)

    def test_one_rank_alone(self):
        groups = [dist.new_group([rank]) for rank in range(self.size)]
        tensor = torch.ones(2)
        dist.all_reduce(tensor, group=groups[self.rank])
        self.assertEqual(tensor.tolist(), [1, 1])

    def test_split(self):
        backend = dist.group.WORLD._get_backend(torch.device("cpu"))
        self.assertTrue(backend.supports_splitting)
        split = dist.group.WORLD.split_group([1, 2], group_name="halves", group_desc="two of three")
        if self.rank == 0:
            self.assertIsNone(split)
            return
        tensor = torch.tensor([float(self.rank)])
        split.allreduce([tensor]).wait()
        self.assertEqual([tensor.item(), split.rank(), split.size()], [3, self.rank - 1, 2])
        split.shutdown()

    def test_options(self):
        options = gradwire.Options(algorithm="all_reduce=tree", shared_memory=False, secret="s")
        group = dist.new_group(pg_options=options)
        tensor = torch.ones(10000)
        dist.all_reduce(tensor, group=group)
        backend = gradwire.backend_of(group)
        self.assertEqual(tensor[0].item(), self.size)
        self.assertEqual(backend.algorithm_for("all_reduce", 40000), "tree")
        self.assertEqual(backend.options.secret, "s")
        self.assertGreater(backend.bytes_sent, 0)
        with self.assertRaisesRegex(TypeError, "no 'rails'; it has algorithm"):
            gradwire.Options(rails="eth0")
        with self.assertRaisesRegex(ValueError, "no collective is called"):
            backend.algorithm_for("alreduce", 1)

    def test_encryption(self):
        options = gradwire.Options(encryption=True, shared_memory=False, secret="long enough")
        group = dist.new_group(pg_options=options)
        tensor = torch.arange(10000.0)
        dist.all_reduce(tensor, group=group)
        self.assertTrue(torch.equal(tensor, self.size * torch.arange(10000.0)))

    def test_encryption_without_a_secret(self):
        with self.assertRaisesRegex(ValueError, "GRADWIRE_SECRET"):
            dist.new_group(pg_options=gradwire.Options(encryption=True, shared_memory=False))

    def test_engines_that_are_torchs_own(self):
        for engine, why in (("gloo", "no headers of libtorch's Gloo"), ("nccl", "NCCL's groups")):
            with self.assertRaisesRegex(ValueError, f'engine "{engine}".*{why}'):
                dist.new_group(pg_options=gradwire.Options(engine=engine))

    def test_a_port_that_is_none(self):
        with self.assertRaisesRegex(ValueError, "'port' is 70000"):
            dist.new_group(pg_options=gradwire.Options(port=70000))

    def test_devices_by_name(self):
        """One backend for both, with or without a GPU."""
        group = dist.new_group(backend="cpu:gradwire,cuda:gradwire")
        self.assertIs(gradwire.backend_of(group), gradwire.backend_of(group, "cuda"))
        tensor = torch.ones(1)
        dist.all_reduce(tensor, group=group)
        self.assertEqual(tensor.item(), self.size)

    def test_a_mesh_of_groups(self):
        mesh = dist.init_device_mesh("cpu", (self.size,), mesh_dim_names=("all",))
        tensor = torch.ones(1)
        dist.all_reduce(tensor, group=mesh.get_group("all"))
        self.assertEqual(tensor.item(), self.size)


def new_group_of_all(**settings):
    """Returns a group that every rank has joined: otherwise an early failure could break the
    creation on a late rank."""
    group = dist.new_group(**settings)
    dist.barrier()
    return group


class Failures(Case):
    def test_ranks_that_disagree_are_told_both_sides(self):
        """The error is reported by the rank that detects it, and names rank 1 and another one."""
        group = new_group_of_all()
        with self.assertRaises(RuntimeError) as caught:
            for _ in range(2):  # A rank may learn of it only in the next call.
                dist.all_reduce(torch.ones(3 + (self.rank == 1)), group=group)
                dist.barrier(group)
        sides = re.search(r"ranks disagree about operation #\d+: rank (\d)\b.* calls all_reduce of "
                          r"(\d) float32.*, rank (\d) calls all_reduce of (\d) float32",
                          str(caught.exception))
        self.assertTrue(sides, caught.exception)
        rank, count, other, others_count = map(int, sides.groups())
        self.assertEqual(sorted([count, others_count]), [3, 4])
        self.assertEqual(rank if count == 4 else other, 1)

    def test_a_late_rank_is_named(self):
        group = new_group_of_all(timeout=SHORT)
        if self.rank != 2:
            with self.assertRaisesRegex(RuntimeError, "rank 2"):
                dist.all_reduce(torch.ones(3), group=group)

    def test_monitored_barrier_names_who_is_missing(self):
        group = new_group_of_all()
        if self.rank != 2:
            with self.assertRaisesRegex(RuntimeError, "rank 2"):
                group.monitored_barrier(SHORT)

    def test_set_timeout(self):
        group = new_group_of_all()
        group.set_timeout(SHORT)
        if self.rank == 0:
            with self.assertRaisesRegex(RuntimeError, "its timeout of 0.5 s"):
                dist.recv(torch.ones(1), 1, group=group)

    def test_abort_fails_the_others(self):
        group = new_group_of_all()
        if self.rank == 1:
            gradwire.backend_of(group).abort()
        else:
            with self.assertRaisesRegex(RuntimeError, "rank 1 aborted"):
                dist.barrier(group)

    def test_after_shutdown_it_says_so(self):
        group = new_group_of_all()
        dist.barrier(group)
        gradwire.backend_of(group).shutdown()
        with self.assertRaisesRegex(RuntimeError, "has been shut down"):
            dist.barrier(group)

    def test_a_wait_that_ends_before_the_operation(self):
        if self.rank == 0:
            tensor = torch.zeros(1)
            work = dist.irecv(tensor, 1)
            with self.assertRaisesRegex(RuntimeError, "still in flight after 100 ms"):
                work.wait(datetime.timedelta(milliseconds=100))
            dist.barrier()
            work.wait()
            self.assertEqual(tensor.item(), 1)
        else:
            dist.barrier()
            if self.rank == 1:
                dist.send(torch.ones(1), 0)


class Waiting(Case):
    def test_other_threads_run_while_one_waits(self):
        """Rank 0's second thread sends what its first awaits: impossible if the GIL were held."""
        if self.rank == 1:
            tensor = torch.zeros(1)
            dist.recv(tensor, 0, tag=5)
            dist.send(tensor, 0, tag=6)
        elif self.rank == 0:
            tensor = torch.zeros(1)
            waits = threading.Event()

            def other():
                waits.wait()
                dist.send(torch.ones(1), 1, tag=5)

            thread = threading.Thread(target=other)
            thread.start()
            work = dist.irecv(tensor, 1, tag=6)
            waits.set()
            work.wait()
            thread.join()
            self.assertEqual(tensor.item(), 1)

    def test_futures(self):
        tensor = torch.ones(3)
        work = dist.all_reduce(tensor, async_op=True)
        doubled = work.get_future().then(lambda future: future.value()[0] * 2)
        self.assertEqual(doubled.wait().tolist(), [2.0 * self.size] * 3)
        self.assertTrue(work.is_completed() and work.is_success())
        self.assertEqual(work.result()[0].tolist(), [self.size] * 3)

    def test_callbacks_may_communicate_and_wait(self):
        """PowerSGD's hook does so, for several buckets at once."""
        groups = [dist.new_group() for _ in range(3)]
        futures = []
        for group in groups:
            def more(future, group=group):
                tensor = future.value()[0]
                return dist.all_reduce(tensor, group=group, async_op=True).get_future().wait()[0]

            work = dist.all_reduce(torch.ones(1), group=group, async_op=True)
            futures.append(work.get_future().then(more))
        for future in futures:
            self.assertEqual(future.wait().item(), self.size ** 2)

    def test_errors_arrive_in_futures(self):
        group = new_group_of_all(timeout=SHORT)
        if self.rank == 0:
            future = dist.irecv(torch.ones(1), 1, group=group).get_future()
            with self.assertRaisesRegex(RuntimeError, "rank"):
                future.wait()


class Processes(Case):
    def test_a_program_that_forgets_to_destroy_its_group_ends(self):
        code = ("import atexit, os, torch, torch.distributed as dist\n"
                "def late():\n"
                "    try: dist.barrier()\n"
                "    except RuntimeError as error: print('closed:', error)\n"
                "atexit.register(late)\n"
                "import gradwire\n"
                "dist.init_process_group('gradwire', init_method='file://' + os.environ['STORE'],"
                " rank=int(os.environ['RANK']), world_size=3)\n"
                "t = torch.ones(1); dist.all_reduce(t); assert t.item() == 3\n")
        environment = dict(os.environ, STORE=ranks.folder("other"))
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True,
                              text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("closed:", done.stdout)


if __name__ == "__main__":
    ranks.main(3)
