"""Rendezvous of a job's ranks: gradwire://, and env:// if the job has a secret.

PyTorch's store of env:// listens on every interface and does not authenticate its clients. The
job's store listens on MASTER_ADDR only and admits only clients that prove the job's secret.
"""

import atexit
import datetime
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qsl, urlparse

from torch.distributed import Store
from torch.distributed.constants import default_pg_timeout

from gradwire import _core

# By its name, because torch.distributed also has a function called rendezvous.
_rendezvous = importlib.import_module("torch.distributed.rendezvous")

SCHEME = "gradwire"

Met = Iterator[tuple[Store, int, int]]


def register() -> None:
    """Registers gradwire:// with torch.distributed, and makes env:// use it if possible. Importing
    gradwire calls it."""
    handlers = _rendezvous._rendezvous_handlers
    if SCHEME in handlers:
        return
    _rendezvous.register_rendezvous_handler(SCHEME, _meet)
    handlers["env"] = _instead_of(handlers["env"])


def _meet(url: str, timeout: datetime.timedelta = default_pg_timeout, **_: Any) -> Met:
    """gradwire:// takes rank, world size, address and port from the launcher's environment;
    gradwire://host:port, and rank and world_size of init_process_group, take precedence."""
    if os.environ.get("GRADWIRE_ROLE") == "server":
        atexit.register(_warn_of_idle_server)
    yield _core.open_store(_variables(url), timeout)
    raise RuntimeError(f"a {SCHEME}:// rendezvous cannot be repeated with the same iterator")


_has_served = False  # Set by note_served().


def note_served() -> None:
    """Says that this rank was a parameter server until all workers had left."""
    global _has_served
    _has_served = True


def _warn_of_idle_server() -> None:
    if not _has_served and getattr(sys, "last_value", None) is None:
        print("gradwire: warning: this rank is a parameter server (gradwire run --servers), and "
              "its program has not constructed gradwire.Served or ServedEmbedding, in which a rank "
              "serves: no worker used this rank. Leave --servers out", file=sys.stderr)


def _variables(url: str) -> dict[str, str]:
    parts, given = urlparse(url), {}
    if parts.scheme == SCHEME and parts.netloc:
        if parts.hostname is None or parts.port is None:
            raise ValueError(f"{url!r}: expected {SCHEME}:// or {SCHEME}://host:port")
        given = {"MASTER_ADDR": parts.hostname, "MASTER_PORT": str(parts.port)}
    names = {"rank": "RANK", "world_size": "WORLD_SIZE"}
    return given | {names[name]: value for name, value in parse_qsl(parts.query) if name in names}


def _instead_of(handler: Callable[..., Met]) -> Callable[..., Met]:
    def meet(url: str, **given: Any) -> Met:
        return (_meet if has_secret(url) else handler)(url, **given)

    return meet


def has_secret(url: str) -> bool:
    """Returns False under torchrun, which serves its own store at MASTER_PORT, and if a variable is
    missing, which PyTorch's handler then reports."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == str(True):
        return False
    known = os.environ | _variables(url)
    names = ("GRADWIRE_SECRET", "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    return all(known.get(name) for name in names)
