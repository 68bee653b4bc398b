"""Test programs that run as several ranks: each runs the same unittest cases in the same order."""

import datetime
import faulthandler
import os
import pathlib
import select
import shutil
import signal
import sys
import tempfile
import time
import unittest

# Where there is an accelerator, the tests' tensors can be on it: "cuda".
DEVICE = os.environ.get("GRADWIRE_TEST_DEVICE")
# The backend of the ranks' group: suites of classes that take any group run over another one too.
BACKEND = os.environ.get("GRADWIRE_TEST_BACKEND", "gradwire")
LIMIT = int(os.environ.get("GRADWIRE_TEST_LIMIT", 240))  # Seconds, after which all are killed.


def main(count, backend=BACKEND, least=1, fresh=DEVICE is not None):
    """Main function of a test program: forks `count` ranks that run its tests, and exits. Fails if
    fewer than `least` tests have run and passed; skipped tests do not count. `fresh`: each rank
    imports the program again, because a forked process cannot use accelerators."""
    os.environ["OMP_NUM_THREADS"] = "1"
    if "RANK" in os.environ:
        _be_a_rank(backend, least)
    shared = tempfile.mkdtemp()  # Not by a `with`, which the ranks would leave too.
    statuses = fork(count, shared)
    if statuses is None:
        if fresh:
            os.execv(sys.executable, [sys.executable, *sys.argv])
        _be_a_rank(backend, least)
    for rank in range(count):
        if any(statuses) or rank == 0:
            print(f"--- rank {rank}\n{output_of(rank, shared)}", flush=True)
    shutil.rmtree(shared)
    sys.exit(1 if any(statuses) else 0)


def fork(count, shared):
    """Forks the ranks of a job. This process must have imported what they need: a fork takes
    milliseconds, the import of PyTorch seconds. Returns their exit statuses after they have ended,
    and None in the ranks themselves."""
    sys.stdout.flush()
    children = []
    for rank in range(count):
        child = os.fork()
        if child == 0:
            _become_rank(rank, count, shared)
            return None
        children.append(child)
    return _wait(children)


def _become_rank(rank, count, shared):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(count), LOCAL_RANK=str(rank),
                      GRADWIRE_TEST_FOLDER=shared, STORE=os.path.join(shared, "store"))
    # One core for each rank. The variable is read when PyTorch is imported, which may be before.
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    output = os.open(_output_path(rank, shared), os.O_WRONLY | os.O_CREAT)
    os.dup2(output, 1)
    os.dup2(output, 2)


def _wait(children):
    deadline = time.monotonic() + LIMIT
    statuses = []
    for child in children:
        ended = select.poll()
        ended.register(os.pidfd_open(child), select.POLLIN)
        if not ended.poll(1000 * max(0, deadline - time.monotonic())):
            os.kill(child, signal.SIGKILL)
        statuses.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    return statuses


def _output_path(rank, shared):
    return os.path.join(shared, f"rank{rank}")


def output_of(rank, shared):
    """Returns the output, so far, of a rank that fork() has started."""
    return pathlib.Path(_output_path(rank, shared)).read_text()


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

    if DEVICE:
        torch.set_default_device(DEVICE)
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


def needs(trait):
    """Skips a test over a backend that lacks what gradwire's has."""
    return unittest.skipIf(BACKEND != "gradwire", f"{BACKEND} lacks {trait}")


def folder(name):
    """Returns a path that all ranks share and that is removed with them."""
    return os.path.join(os.environ["GRADWIRE_TEST_FOLDER"], name)


def premul_sum(factor):
    """Returns ReduceOp.PREMUL_SUM(factor), which cannot be called before PyTorch 2.13."""
    import torch.distributed as dist

    if callable(dist.ReduceOp.PREMUL_SUM):
        return dist.ReduceOp.PREMUL_SUM(factor)
    return dist._make_nccl_premul_sum(factor)
