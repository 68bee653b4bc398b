"""Traces of training steps, on every rank: docs/trace.md."""

import contextlib
import os
from collections.abc import Iterator

from torch.distributed import ProcessGroup

from gradwire import _core
from gradwire.hooks import Hook
from gradwire.serving import group_or_world

PARTS = ("data", "forward", "backward", "optimiser", "wait")


class Trace:
    """One trace of all ranks of a group, started by `gradwire.trace`."""

    def __init__(
        self,
        file: str | os.PathLike[str],
        group: ProcessGroup | None = None,
        hook: Hook | None = None,
    ) -> None:
        """See `gradwire.trace`."""
        self._core = _core.trace(group_or_world(group, "trace"), os.path.abspath(file))
        self._steps = 0
        if hook is not None:
            self._core.follow(hook._core)

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """Records a whole step, around all of its parts. Steps are counted from 0."""
        self._core.begin_step(self._steps)
        self._steps += 1
        with self.part("step"):
            yield

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Records a part of the step: one of PARTS, which the summary sums, or any other name,
        which appears only in the file. It is recorded even if the body raises."""
        begin = self._core.now()
        try:
            yield
        finally:
            self._core.record(name, begin, 0)

    def finish(self) -> str | None:
        """Gathers the spans of all ranks and writes the file atomically. Returns the summary as
        text on rank 0, None elsewhere. Collective: call it once, on every rank, between steps;
        nothing is recorded afterwards. Raises RuntimeError if a rank is gone or the file cannot be
        written.
        """
        return self._core.finish()


def trace(
    file: str | os.PathLike[str], group: ProcessGroup | None = None, hook: Hook | None = None
) -> Trace:
    """Starts recording what every rank of a group does in every step (docs/trace.md).

        hook = gradwire.hooks.register(model, "none")   # any codec; makes buckets visible
        trace = gradwire.trace("trace.json", hook=hook)
        for batch in batches:
            with trace.step():
                with trace.part("forward"):
                    loss = ...
                with trace.part("backward"):
                    loss.backward()
        print(trace.finish())

    file: path that rank 0 writes at the end, JSON for https://ui.perfetto.dev; only rank 0's is
        used.
    group: group of ranks to trace, of any backend that can send tensors of the CPU; None: the
        default group.
    hook: hook of gradwire.hooks on the trained model. Each of its buckets becomes a span of
        communication, from DDP's call until its mean is in place. None: no such spans.

    The start and end of each step and part are recorded on this rank's clock. Times in the file
    are microseconds since recording started; the bytes of a bucket are those before compression.
    A rank keeps its newest 65,536 spans. Collective: every rank calls it, at the same place and
    before the first step, because the ranks' clocks are compared, and every rank calls finish().

    Raises ValueError if there is no group, RuntimeError on rank 0 if the file cannot be written,
    and RuntimeError on any rank if another rank is gone.
    """
    return Trace(file, group, hook)
