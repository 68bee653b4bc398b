"""Test programs that run as several ranks: each runs the same unittest cases in the same order."""

import datetime
import faulthandler
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

LIMIT = int(os.environ.get("GRADWIRE_TEST_LIMIT", 240))  # Seconds, after which all are killed.


def main(count, backend="gradwire", least=1):
    """Main function of a test program: starts itself `count` times, or runs as one of these ranks.
    Fails if fewer than `least` tests have run and passed; skipped tests do not count."""
    if "RANK" in os.environ:
        _be_a_rank(backend, least)
    sys.exit(_start(count))


def _start(count):
    with tempfile.TemporaryDirectory() as folder:
        ranks = [_start_rank(rank, count, pathlib.Path(folder)) for rank in range(count)]
        try:
            codes = [rank.wait(timeout=LIMIT) for rank in ranks]
        except subprocess.TimeoutExpired:
            codes = ["still running"]
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()
        for rank in range(count):
            text = (pathlib.Path(folder) / f"rank{rank}").read_text()
            if any(codes) or rank == 0:
                print(f"--- rank {rank}\n{text}", flush=True)
    return 1 if any(codes) else 0


def _start_rank(rank, count, folder):
    environment = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(count), LOCAL_RANK=str(rank),
                       OMP_NUM_THREADS="1", GRADWIRE_TEST_FOLDER=str(folder),
                       PYTHONDONTWRITEBYTECODE="1")
    with open(folder / f"rank{rank}", "w") as output:
        return subprocess.Popen([sys.executable, *sys.argv], env=environment, stdout=output,
                                stderr=subprocess.STDOUT)


class _Result(unittest.TextTestResult):
    passed = 0

    def addSuccess(self, test):  # noqa: N802: unittest's name.
        super().addSuccess(test)
        self.passed += 1

    def summary(self):
        """Returns the number of passed tests, and the skipped tests by reason."""
        lines = [f"{self.passed} tests passed, {len(self.skipped)} were skipped:"]
        for reason in sorted({reason for _, reason in self.skipped}):
            names = [test.id().rpartition(".")[2] for test, why in self.skipped if why == reason]
            lines += [f"  {reason} ({len(names)})"] + [f"    {name}" for name in names]
        return "\n".join(lines)


def _be_a_rank(backend, least):
    faulthandler.dump_traceback_later(LIMIT - 20, exit=True)
    import torch
    import torch.distributed as dist

    # Where there is an accelerator, the tests' tensors can be on it: "cuda".
    if "GRADWIRE_TEST_DEVICE" in os.environ:
        torch.set_default_device(os.environ["GRADWIRE_TEST_DEVICE"])
    if backend:
        import gradwire  # noqa: F401: registers the backend

        dist.init_process_group(backend, init_method="file://" + folder("store"),
                                rank=int(os.environ["RANK"]),
                                world_size=int(os.environ["WORLD_SIZE"]),
                                timeout=datetime.timedelta(seconds=60))
    runner = unittest.TextTestRunner(verbosity=2, resultclass=_Result)
    result = unittest.main(module="__main__", exit=False, testRunner=runner).result
    if backend:
        dist.destroy_process_group()
    if result.skipped:
        print(result.summary())
    if result.passed < least:
        print(f"FAILED: {result.passed} tests have run and passed, and {least} must")
    sys.exit(0 if result.wasSuccessful() and result.passed >= least else 1)


def folder(name):
    """Returns a path that all ranks share and that is removed with them."""
    return os.path.join(os.environ["GRADWIRE_TEST_FOLDER"], name)
