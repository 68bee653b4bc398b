"""PyTorch's flight recorder, from 2.15 on, shows gradwire's operations with their true states. Two
ranks. Not part of `make test`, whose PyTorch is older: `make releases` runs it."""

import json
import time
import unittest

import ranks
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _dump_fr_trace_json


def entries():
    """Returns this rank's recorded operations, oldest first."""
    return json.loads(_dump_fr_trace_json(includeCollectives=True, onlyActive=False,
                                          backend="gradwire"))["entries"]


def last(name):
    return [entry for entry in entries() if entry["profiling_name"] == "gradwire:" + name][-1]


class FlightRecorder(unittest.TestCase):
    def assert_completed(self, name):
        """The hook may run shortly after wait() returned, on another thread."""
        deadline = time.monotonic() + 20
        while last(name)["state"] != "completed" and time.monotonic() < deadline:
            dist.barrier()
        entry = last(name)
        self.assertEqual(entry["state"], "completed", entry)
        return entry

    def test_finished_operations_are_completed(self):
        for elements in (1, 1000, 1_000_000):
            with self.subTest(elements=elements):
                tensor = torch.ones(elements)
                dist.all_reduce(tensor)
                entry = self.assert_completed("all_reduce")
        self.assertGreater(entry["duration_ms"], 0)  # If it was not completed when it was recorded.
        output = torch.zeros(4)
        dist.all_gather_into_tensor(output, torch.ones(2))
        self.assert_completed("_all_gather_base")
        if dist.get_rank() == 0:
            dist.send(tensor, 1)
        else:
            dist.recv(tensor, 0)

    def test_an_operation_in_flight_is_not_completed(self):
        other = 1 - dist.get_rank()
        tensor = torch.zeros(3)
        receive = dist.irecv(tensor, other)
        active = [entry for entry in entries() if "recv" in entry["profiling_name"]][-1]
        self.assertNotEqual(active["state"], "completed", active)
        self.assertFalse(active["retired"], active)
        dist.barrier()  # Both have looked.
        send = dist.isend(tensor, other)
        receive.wait()
        send.wait()


if __name__ == "__main__":
    ranks.main(2, least=2)
