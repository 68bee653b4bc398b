"""Missing ranks at a monitored barrier. Six ranks, so that not all pairs exchange messages."""

import datetime
import unittest

import ranks
import torch
import torch.distributed as dist

LONG, SHORT = datetime.timedelta(seconds=60), datetime.timedelta(seconds=4)
MISSING = (2, 4)


class MonitoredBarrier(unittest.TestCase):
    def setUp(self):
        self.group = dist.new_group()
        dist.barrier(self.group)  # All ranks have created the group.

    def test_passes_when_all_have_come(self):
        for _ in range(3):
            self.group.monitored_barrier(LONG)
        dist.monitored_barrier()
        dist.monitored_barrier(self.group, LONG, wait_all_ranks=True)
        dist.monitored_barrier(self.group, LONG.total_seconds())

    def test_is_a_fence(self):
        x = torch.ones(500_000)
        for _ in range(10):
            x.fill_(1)
            work = dist.all_reduce(x, group=self.group, async_op=True)
            dist.monitored_barrier(self.group, LONG)
            self.assertTrue((x == dist.get_world_size()).all(), "a half-made sum")
            work.wait()

    def test_of_others_is_theirs(self):
        others = dist.new_group(list(range(3)), backend="gloo")
        if dist.get_rank() < 3:
            dist.monitored_barrier(others, LONG)
        else:
            with self.assertWarnsRegex(UserWarning, "monitored_barrier"):
                dist.monitored_barrier(others, LONG)
        dist.barrier()

    def test_names_all_that_are_missing(self):
        if dist.get_rank() not in MISSING:
            with self.assertRaises(RuntimeError) as raised:
                dist.monitored_barrier(self.group, SHORT)
            for rank in range(dist.get_world_size()):
                if dist.get_rank() == 0:
                    named = f"rank {rank} (host" in str(raised.exception)
                    self.assertEqual(named, rank in MISSING, f"{rank}: {raised.exception}")
        dist.barrier()

    def test_names_rank_0_if_it_is_missing(self):
        if dist.get_rank() != 0:
            with self.assertRaisesRegex(RuntimeError, "rank 0"):
                self.group.monitored_barrier(SHORT)
        dist.barrier()


if __name__ == "__main__":
    ranks.main(6)
