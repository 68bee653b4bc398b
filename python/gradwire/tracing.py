"""Where the time of a training step goes, on every rank: docs/trace.md."""

import contextlib
import os

from gradwire import _core
from gradwire.backend import backend_of

PARTS = ("data", "forward", "backward", "optimiser", "wait")


class Trace:
    """One trace of all ranks of a group. Every rank makes one, at the same place, and finishes it:

        hook = gradwire.hooks.register(model, "none")   # so that buckets are seen; any codec
        trace = gradwire.trace("trace.json", hook=hook)
        for batch in batches:
            with trace.step():
                with trace.part("forward"):
                    loss = ...
                with trace.part("backward"):
                    loss.backward()
        print(trace.finish())
    """

    def __init__(self, file, group=None, hook=None):
        """file: what rank 0 writes at the end, for https://ui.perfetto.dev. hook: of
        gradwire.hooks, whose buckets become spans of communication. Compares the ranks' clocks:
        blocks until all are here. Raises RuntimeError, if the file cannot be written."""
        self._core = _core.trace(backend_of(group), os.path.abspath(file))
        self._steps = 0
        if hook is not None:
            self._core.follow(hook._core)

    @contextlib.contextmanager
    def step(self):
        """A whole step."""
        self._core.begin_step(self._steps)
        self._steps += 1
        with self.part("step"):
            yield

    @contextlib.contextmanager
    def part(self, name):
        """A part of it, one of PARTS, or any name."""
        begin = self._core.now()
        try:
            yield
        finally:
            self._core.record(name, begin, 0)

    def finish(self):
        """Writes the file. On rank 0 returns the summary as text, elsewhere None. Collective."""
        return self._core.finish()


def trace(file, group=None, hook=None):
    """A Trace."""
    return Trace(file, group, hook)
