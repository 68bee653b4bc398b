"""torch.distributed.monitored_barrier over gradwire."""

import datetime
import functools
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from gradwire.backend import backend_of


def take_monitored_barrier() -> None:
    """Replaces torch.distributed.monitored_barrier, which supports no backend but gloo. Over
    gradwire it calls the group's monitored_barrier; other backends are unaffected. The first
    gradwire group calls it."""
    original = c10d.monitored_barrier
    if hasattr(original, "gradwire_groups"):
        return

    @functools.wraps(original)
    def monitored_barrier(group: dist.ProcessGroup | None = None,
                          timeout: datetime.timedelta | float | None = None,
                          wait_all_ranks: bool = False) -> None:
        if not _is_ours(group):
            return original(group, timeout, wait_all_ranks)
        given: dict[str, Any] = {"wait_all_ranks": wait_all_ranks}
        if timeout is not None:
            seconds = timeout if isinstance(timeout, int | float) else timeout.total_seconds()
            given["timeout"] = datetime.timedelta(seconds=seconds)
        (group or dist.group.WORLD).monitored_barrier(**given)

    monitored_barrier.gradwire_groups = True  # type: ignore[attr-defined]
    c10d.monitored_barrier = dist.monitored_barrier = monitored_barrier


def _is_ours(group: Any) -> bool:
    """Returns False for invalid groups too: PyTorch's own function then checks the arguments, and
    warns a rank that is not in the group."""
    if group is not None and not isinstance(group, dist.ProcessGroup):
        return False
    try:
        backend_of(group)
    except (ValueError, RuntimeError):
        return False
    return True
