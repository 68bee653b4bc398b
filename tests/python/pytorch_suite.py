"""PyTorch's own tests of c10d and DistributedDataParallel (torch.testing._internal), over gradwire.

The backend is announced to them as Gloo, so that Gloo's tests run, but every group is gradwire's.
All tests run in the same three processes, whereas PyTorch starts new ones for each. SKIPPED lists
excluded tests with reasons; tests for GPUs, other backends or other numbers of ranks skip
themselves. Rank 0's last lines list both."""

import datetime
import os
import re
import unittest

os.environ["BACKEND"] = "gloo"
os.environ.setdefault("INIT_METHOD", "env://")
os.environ["WORLD_SIZE"] = "3"

import ranks  # noqa: E402

import gradwire  # noqa: E402, F401: registers the backend
import torch.distributed as dist  # noqa: E402
from torch.testing._internal import common_distributed  # noqa: E402
from torch.testing._internal.common_utils import TestCase  # noqa: E402

# Groups of two ranks, which PyTorch tests only if there are eight ranks.
common_distributed.skip_if_small_worldsize = lambda method: method
from torch.testing._internal.distributed import distributed_test as theirs  # noqa: E402

GLOOS = "Gloo's own name or words are expected"
NO_GPU = "for GPUs, without saying so"
SKIPPED = {
    "test_SyncBatchNorm_process_group": "needs torchvision, without saying so",
    "test_all_to_all.*_cuda.*|test_batch_isend_irecv_op_err": NO_GPU,
    "test_batch_isend_irecv_mixed_backend_err": "needs NCCL",
    "test_barrier_timeout_global": "makes the default group anew by the runner's env://",
    "test_barrier_timeout_(arg|full_group|group)": GLOOS,
    "test_get_backend": GLOOS,
    "test_ddp_logging_data_cpu": "DDP's own bucket size is expected, and the backend's name where "
                                 "PyTorch writes custom",
    "test_monitored_barrier_.*": "Gloo's own words are expected, and that a group goes on after a "
                                 "timeout; ours is tested in test_monitored_barrier.py",
    "test_new_subgroups_with_group_param": "needs four ranks, without saying so",
}

PASS = 115  # Minimum, of the tests that need neither a GPU nor another backend.

REASONS = {skip.exit_code: skip.message for skip in common_distributed.TEST_SKIPS.values()}


def guarded(method):
    def run(self):
        try:
            method(self)
        except SystemExit as end:  # PyTorch's way to skip.
            if end.code not in REASONS:
                raise AssertionError(f"the test ends its process: exit {end.code}") from end
            raise unittest.SkipTest(REASONS[end.code]) from None
    return run


class PyTorch(theirs.DistributedTest._DistTestBase, TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        os.environ["TEMP_DIR"] = ranks.folder("theirs")
        os.makedirs(ranks.folder("theirs/test_dir"), exist_ok=True)

    def setUp(self):
        """Each test has its own group, because some break it."""
        super().setUp()  # Seeds.
        # Tests that skip themselves leave the level at DETAIL. Every group would then have a
        # Gloo group besides, which fails if a rank skips, and so leaves, before all are
        # connected.
        dist.set_debug_level(dist.DebugLevel.OFF)
        self.rank, self.world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.file_name = ranks.folder(self._testMethodName)
        dist.init_process_group("gradwire", init_method="file://" + self.file_name,
                                rank=self.rank, world_size=self.world_size,
                                timeout=datetime.timedelta(seconds=60))

    def tearDown(self):
        if dist.is_initialized():
            dist.destroy_process_group()

    def _barrier(self, *_, **__):
        dist.barrier()


for name in dir(PyTorch):
    if name.startswith("test_"):
        reason = next((why for what, why in SKIPPED.items() if re.fullmatch(what, name)), None)
        method = getattr(PyTorch, name)
        setattr(PyTorch, name, unittest.skip(reason)(method) if reason else guarded(method))


if __name__ == "__main__":
    ranks.main(3, backend=None, least=PASS)
