"""The part that classes with parameter servers have in common: how ranks serve, and leave."""

import atexit
import os
import weakref
from types import TracebackType
from typing import Any, NoReturn

import torch.distributed as dist

from gradwire import rendezvous
from gradwire.backend import failure_of_process


def group_or_world(group: dist.ProcessGroup | None, who: str) -> dist.ProcessGroup:
    """Returns the group. Raises ValueError, which names `who`, if there is none."""
    found = group or dist.group.WORLD
    if found is None:
        raise ValueError(f"{who}: no process group exists: call init_process_group first")
    return found


def end_server() -> NoReturn:
    """Ends the program of a rank that has served."""
    rendezvous.note_served()
    raise SystemExit(0)


# The process that they belong to, and what leaves before it ends. A forked child has copies.
_live: "weakref.WeakKeyDictionary[Leaving, int]" = weakref.WeakKeyDictionary()


class Leaving:
    """Leaves the servers: in close(), at the end of a `with`, or when the process ends. After an
    exception, says which to the servers."""

    _core: Any  # Has leave() and abort(why).
    _has_left = False

    def _leave_at_exit(self) -> None:
        if not _live:
            atexit.unregister(_leave_all)
            atexit.register(_leave_all)  # After that of the groups, so that it is called before.
        _live[self] = os.getpid()

    def close(self) -> None:
        """Tells the servers that this worker has ended. If a server is beside it, waits until all
        workers have. Afterwards a module is as before it was wrapped, with its parameters."""
        _live.pop(self, None)
        self._core.leave()
        self._has_left = True

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None,
        trace: TracebackType | None
    ) -> None:
        if kind is None:
            return self.close()
        _live.pop(self, None)
        self._has_left = True
        self._core.abort(f"after an exception: {kind.__name__}: {value}")


def _leave_all() -> None:
    failure = failure_of_process()
    for leaving, process in list(_live.items()):
        if process != os.getpid():
            continue
        if failure:
            leaving._core.abort(failure)
        else:
            leaving.close()
