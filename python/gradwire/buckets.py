"""Bucket size of DistributedDataParallel over gradwire."""

import functools
import inspect
import os
from typing import Any

from torch.nn.parallel import DistributedDataParallel

from gradwire.backend import backend_of

# The last bucket is sent after backward, and nothing hides it. With PyTorch's default of 25 MiB it
# is large. On Ethernet an operation of 5 MiB takes milliseconds, so its start-up is negligible.
BUCKET_MB = 5
VARIABLE = "GRADWIRE_DDP_BUCKET_MB"


def choose_buckets() -> None:
    """Makes DistributedDataParallel over gradwire use buckets of 5 MiB, or of
    GRADWIRE_DDP_BUCKET_MB, unless their size is given. Other backends are unaffected. The first
    gradwire group calls it."""
    original = DistributedDataParallel.__init__
    if hasattr(original, "gradwire_buckets"):
        return
    signature = inspect.signature(original)

    @functools.wraps(original)
    def init(*args: Any, **kwargs: Any) -> None:
        given = signature.bind(*args, **kwargs)
        if _is_to_choose(given.arguments):
            given.arguments["bucket_cap_mb"] = _bucket_mb()
        original(*given.args, **given.kwargs)

    init.gradwire_buckets = True  # type: ignore[attr-defined]
    DistributedDataParallel.__init__ = init  # type: ignore[method-assign]


def _is_to_choose(given: dict[str, Any]) -> bool:
    told = given.get("bucket_cap_mb") is not None or given.get("bucket_cap_mb_list")
    return not told and _is_ours(given)


def _is_ours(given: dict[str, Any]) -> bool:
    """Returns False for invalid arguments too: DistributedDataParallel itself reports them."""
    group, mesh = given.get("process_group"), given.get("device_mesh")
    parameter = next(given["module"].parameters(), None)
    if parameter is None:
        return False
    try:
        backend_of(mesh.get_group() if mesh is not None else group, parameter.device)
    except (ValueError, RuntimeError):
        return False
    return True


def _bucket_mb() -> float:
    text = os.environ.get(VARIABLE, str(BUCKET_MB))
    try:
        size = float(text)
    except ValueError:
        size = 0.0
    if not 0 < size < float("inf"):
        raise ValueError(f"{VARIABLE} is {text!r}; expected a positive number of MiB "
                         "(PyTorch's default: 25)")
    return size
