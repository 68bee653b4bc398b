"""Who is missing at a monitored barrier. Six ranks: more than hear from each other in a barrier."""

import datetime
import unittest

import ranks
import torch.distributed as dist

LONG, SHORT = datetime.timedelta(seconds=60), datetime.timedelta(seconds=4)
MISSING = (2, 4)


class MonitoredBarrier(unittest.TestCase):
    def setUp(self):
        self.group = dist.new_group()
        dist.barrier(self.group)  # Nobody is still making it.

    def test_passes_when_all_have_come(self):
        for _ in range(3):
            self.group.monitored_barrier(LONG)

    def test_names_all_that_are_missing(self):
        if dist.get_rank() not in MISSING:
            with self.assertRaises(RuntimeError) as raised:
                self.group.monitored_barrier(SHORT)
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
