"""How many gradients DistributedDataParallel collects before they leave."""

import functools
import inspect
import os
from typing import Any

from torch.nn.parallel import DistributedDataParallel

from gradwire.backend import backend_of

# What fills a bucket of PyTorch's own 25 MiB last leaves after backward, and hides behind nothing.
# On these wires an operation of 5 MiB takes milliseconds, beside which starting it is nothing.
BUCKET_MB = 5
VARIABLE = "GRADWIRE_DDP_BUCKET_MB"


def choose_buckets() -> None:
    """DistributedDataParallel over gradwire takes buckets of 5 MiB, or of GRADWIRE_DDP_BUCKET_MB,
    where it is not told their size. Over another backend nothing changes. Importing gradwire does
    so."""
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
    """DistributedDataParallel itself says what is wrong with its arguments."""
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
        raise ValueError(f"{VARIABLE} is {text!r}, not a number of MiB above 0 (PyTorch's own: 25)")
    return size
