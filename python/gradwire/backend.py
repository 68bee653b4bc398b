"""The backend "gradwire" of torch.distributed."""

import atexit
import sys
from typing import Any

import torch
import torch.distributed as dist

from gradwire import _core

_NAMES = ("algorithm", "codec", "dead_peer_timeout", "encryption", "interface", "port", "secret",
          "shared_memory", "topology")


def Options(**given: Any) -> _core.Options:  # noqa: N802: as the class that it makes.
    """What init_process_group and new_group take as pg_options.

    algorithm: "ring", or "all_reduce=ring,broadcast=tree"; else the tuner chooses.
    codec: what gradwire.hooks.register uses where it is not told, such as "int8".
    dead_peer_timeout: timedelta after which a silent peer counts as dead (5 s).
    encryption: whether what ranks of different hosts send each other is encrypted; needs a secret.
    interface: network interfaces to use at once: names or prefixes, a comma list.
    port: what every rank listens on (1..65535); 0 is any free one.
    secret: text that every connection must prove it knows, the same on all ranks.
    shared_memory: whether ranks of one machine may talk through shared memory.
    topology: path of a file that `gradwire probe` wrote; only rank 0's counts.

    What is not given comes from the environment (GRADWIRE_INTERFACE, ...), as for every job. The
    timeout of operations is init_process_group's own argument. Raises TypeError for other names.
    """
    options = _core.Options()
    for name, value in given.items():
        if name not in _NAMES:
            raise TypeError(f"gradwire.Options has no {name!r}; it has {', '.join(_NAMES)}")
        setattr(options, name, value)
    return options


def register() -> None:
    """Tells torch.distributed of the backend. Importing gradwire does so."""
    devices = ["cpu"]
    accelerator = torch.accelerator.current_accelerator()
    if accelerator is not None:
        devices.append(accelerator.type)
    dist.Backend.register_backend("gradwire", _create, extended_api=True, devices=devices)
    atexit.register(_leave)


def _leave() -> None:
    """At the end of the process. After an uncaught exception the other ranks are told at once;
    otherwise the operations in flight complete first."""
    failed = getattr(sys, "last_value", None) is not None
    _core.close_all(failed=failed)
    _core.close_stores(failed=failed)


def backend_of(
    group: dist.ProcessGroup | None = None, device: str | torch.device = "cpu"
) -> _core.GradwireBackend:
    """The object behind a process group (None: the default one).

    It has, beside c10d's own methods,

    bytes_sent: what this rank has handed to the network so far, payload and headers.
    algorithm_for(collective, bytes): the algorithm that such an operation ("all_reduce",
        "broadcast", ...) of so many bytes takes, the same on all ranks. ValueError: no such
        collective.
    options: what the group was made with.

    Raises ValueError if the group's backend is another, or if there is no group.
    """
    group = group or dist.group.WORLD
    if group is None:
        raise ValueError("there is no process group: call init_process_group first")
    backend = group._get_backend(torch.device(device))
    while hasattr(backend, "wrapped_pg"):  # TORCH_DISTRIBUTED_DEBUG=DETAIL wraps it.
        backend = backend.wrapped_pg
    if isinstance(backend, _core.GradwireBackend):
        return backend
    raise ValueError(f"the group's backend for {device} is {backend.name()}, not gradwire")


def _create(group: Any, options: _core.Options | None) -> _core.GradwireBackend:
    if options is not None and not isinstance(options, _core.Options):
        raise ValueError(f"pg_options of backend gradwire are gradwire.Options(...), "
                         f"not {type(options).__name__}")
    given = options if options is not None else _inherited()
    return _core.create(group, given, first=not dist.is_initialized())


def _inherited() -> _core.Options | None:
    """A group that says nothing has the options of the default group."""
    if not dist.is_initialized():
        return None
    for device in dist.group.WORLD._device_types:  # Of one, gradwire may be for an accelerator.
        try:
            return backend_of(device=device).options
        except (ValueError, RuntimeError):
            continue
    return None
