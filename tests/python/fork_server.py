"""Programs that run as the ranks of a job, forked from a process that has imported PyTorch: the
import takes longer than most programs of a test."""

import importlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import ranks


class ForkServer:
    """A process that runs one job after the other. Not for several threads."""

    def __init__(self, *modules):
        """`modules`: what it imports beside gradwire, before it forks."""
        self._process = subprocess.Popen(
            [sys.executable, __file__, *modules], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, env=dict(os.environ, OMP_NUM_THREADS="1"))

    def run(self, count, text):
        """Runs the program as `count` ranks. RANK, WORLD_SIZE and STORE, a path that all share, are
        in their environment. Returns exit status and output of each."""
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder, "program.py")
            program.write_text(text)
            self._process.stdin.write(json.dumps([count, folder, str(program)]) + "\n")
            self._process.stdin.flush()
            statuses = json.loads(self._process.stdout.readline())
            outputs = [ranks.output_of(rank, folder) for rank in range(count)]
        return list(zip(statuses, outputs))

    def close(self):
        self._process.communicate()


def _serve():
    """Returns a program and its name, in the ranks that run it."""
    for module in ("gradwire", *sys.argv[1:]):  # For the ranks, and PyTorch with it.
        importlib.import_module(module)
    for line in iter(sys.stdin.readline, ""):
        count, folder, program = json.loads(line)
        statuses = ranks.fork(count, folder)
        if statuses is None:
            return pathlib.Path(program).read_text(), program
        print(json.dumps(statuses), flush=True)
    sys.exit(0)


if __name__ == "__main__":
    # In the module's own frame: where it ends, the interpreter ends as after any program.
    exec(compile(*_serve(), "exec"), {"__name__": "__main__"})
