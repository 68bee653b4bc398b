"""Where the time of a training step goes, on every rank: docs/trace.md."""

import contextlib
import os
from collections.abc import Iterator

from torch.distributed import ProcessGroup

from gradwire import _core
from gradwire.backend import backend_of
from gradwire.hooks import Hook

PARTS = ("data", "forward", "backward", "optimiser", "wait")


class Trace:
    """One trace of all ranks of a group, which `gradwire.trace` begins."""

    def __init__(
        self,
        file: str | os.PathLike[str],
        group: ProcessGroup | None = None,
        hook: Hook | None = None,
    ) -> None:
        """As `gradwire.trace`."""
        self._core = _core.trace(backend_of(group), os.path.abspath(file))
        self._steps = 0
        if hook is not None:
            self._core.follow(hook._core)

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """A whole step; they are counted from 0. Around all of its parts."""
        self._core.begin_step(self._steps)
        self._steps += 1
        with self.part("step"):
            yield

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        """A part of the step: one of PARTS, which the summary adds up, or any other name, which is
        only in the file. Recorded even if it raises."""
        begin = self._core.now()
        try:
            yield
        finally:
            self._core.record(name, begin, 0)

    def finish(self) -> str | None:
        """Gathers what all ranks have recorded and writes the file, whole or not at all. On rank 0
        returns the summary as text, elsewhere None. Collective, between steps, and the end: call it
        once, on every rank. Raises RuntimeError if a rank has gone or the file cannot be written.
        """
        return self._core.finish()


def trace(
    file: str | os.PathLike[str], group: ProcessGroup | None = None, hook: Hook | None = None
) -> Trace:
    """Begins to record what every rank of a group does in every step (docs/trace.md).

        hook = gradwire.hooks.register(model, "none")   # so that buckets are seen; any codec
        trace = gradwire.trace("trace.json", hook=hook)
        for batch in batches:
            with trace.step():
                with trace.part("forward"):
                    loss = ...
                with trace.part("backward"):
                    loss.backward()
        print(trace.finish())

    file: what rank 0 writes at the end, JSON for https://ui.perfetto.dev; only rank 0's counts.
    group: whose ranks; None: the default group's. Its backend is gradwire.
    hook: of gradwire.hooks, on the model that is trained: each of its buckets becomes a span of
        communication, from when DDP hands it over until its mean is there. None: there are none.

    Recorded are the beginning and end of each step and part, on this rank's clock; times in the
    file are microseconds since recording began, bytes of a bucket those before any codec. A rank
    keeps its newest 65,536 spans. Collective: every rank calls it, at the same place and before the
    first step, as the ranks' clocks are compared, and every rank calls finish().

    Raises ValueError if the group is not gradwire's, RuntimeError on rank 0 if the file cannot be
    written there, and on any rank if another one is gone.
    """
    return Trace(file, group, hook)
