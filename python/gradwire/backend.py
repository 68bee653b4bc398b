"""The backend "gradwire" of torch.distributed."""

import atexit
import copy
import sys
import traceback
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from gradwire import _core, inside, rendezvous

_NAMES = ("algorithm", "codec", "dead_peer_timeout", "encryption", "engine", "inside", "interface",
          "port", "secret", "shared_memory", "topology")


def Options(**given: Any) -> _core.Options:  # noqa: N802: named as the class of its result.
    """Returns pg_options for init_process_group and new_group.

    algorithm: "ring", or "all_reduce=ring,broadcast=tree"; by default the tuner chooses.
    codec: default codec of gradwire.hooks.register, such as "int8".
    dead_peer_timeout: timedelta after which a silent peer counts as dead (5 s).
    encryption: True encrypts streams between ranks of different hosts; requires a secret.
    engine: "own", or "mpi", under MPI's launcher (docs/engines.md); the same on all ranks.
    inside: the backend between ranks of one host: "nccl", "gloo", another of torch.distributed's,
        or "own". Hosts then exchange the bytes of one rank each (docs/engines.md). For this group
        alone; the same on all ranks.
    interface: network interfaces to use together: comma-separated names or prefixes.
    port: TCP port that every rank listens on (1..65535); 0: any free port.
    secret: text that authenticates every connection; the same on all ranks.
    shared_memory: False prevents ranks of one machine from using shared memory.
    topology: path of a file that `gradwire probe` wrote; only rank 0's is used.

    Options that are not given come from the environment (GRADWIRE_INTERFACE, ...), as for every
    job. The timeout of operations is an argument of init_process_group. Raises TypeError for
    unknown names.
    """
    options = _core.Options()
    for name, value in given.items():
        if name not in _NAMES:
            raise TypeError(f"gradwire.Options has no {name!r}; it has {', '.join(_NAMES)}")
        setattr(options, name, value)
    return options


_adaptations: list[Callable[[], None]] = []


def adapt_at_first_group(*adaptations: Callable[[], None]) -> None:
    """Adds functions that adapt torch.distributed to gradwire. They run when a group is created, so
    that programs with other backends get PyTorch unchanged; and again for each further group."""
    _adaptations.extend(adaptations)


def register() -> None:
    """Registers the backend with torch.distributed. Importing gradwire calls it. Raises
    RuntimeError if PyTorch would never use it."""
    _refuse_torchcomms()
    devices = ["cpu"]
    accelerator = torch.accelerator.current_accelerator()
    if accelerator is not None:
        devices.append(accelerator.type)
    dist.Backend.register_backend("gradwire", _create, extended_api=True, devices=devices)
    atexit.register(_leave)


def _refuse_torchcomms() -> None:
    """PyTorch before 2.14 sends every backend to torchcomms, if that is installed and enabled."""
    sends_all = not hasattr(distributed_c10d, "_torchcomms_handles_backend")
    enabled = getattr(distributed_c10d, "_use_torchcomms_enabled", bool)
    if sends_all and enabled():
        raise RuntimeError(
            f"with TORCH_DISTRIBUTED_USE_TORCHCOMMS=1 PyTorch {torch.__version__} sends every "
            "backend to torchcomms, which does not have gradwire: unset the variable, or install "
            "PyTorch 2.14 or newer")


_was_loaded = False  # Set by load().


def load() -> None:
    """Entry point of torch.distributed.backends, from PyTorch 2.14 on: init_process_group calls it
    if gradwire was not imported. Importing this module has registered the backend."""
    global _was_loaded
    _was_loaded = True


def _refuse_open_store(store: dist.Store) -> None:
    """init_process_group calls load() after the ranks have met in a store. Raises RuntimeError if
    the job has a secret, and that store is not the job's own."""
    while isinstance(store, dist.PrefixStore):
        store = store.underlying_store
    if isinstance(store, dist.TCPStore) and rendezvous.has_secret("env://"):
        raise RuntimeError("the job has a secret (GRADWIRE_SECRET), but its ranks have met in "
                           "PyTorch's store, which admits anyone: add \"import gradwire\" before "
                           "init_process_group")


def failure_of_process() -> str:
    """Returns the uncaught exception that ends the process, for other ranks; "": there is none."""
    exception = getattr(sys, "last_value", None)
    if exception is None:
        return ""
    text = "".join(traceback.format_exception_only(exception)).strip()
    return f"after an exception: {text}"


def _leave() -> None:
    """Called at the end of the process. After an uncaught exception the other ranks are told which,
    at once; otherwise the operations in flight complete first."""
    failure = failure_of_process()
    _core.close_all(failure=failure)
    _core.close_stores(failed=failure != "")


def backend_of(
    group: dist.ProcessGroup | None = None, device: str | torch.device = "cpu"
) -> _core.GradwireBackend:
    """Returns the backend object of a process group (None: the default group).

    Besides c10d's own methods it has

    bytes_sent: bytes that this rank has sent so far, payload and headers.
    algorithm_for(collective, bytes): the algorithm of an operation ("all_reduce", "broadcast",
        ...) of this size, the same on all ranks. Raises ValueError for an unknown collective.
    options: the options of the group.

    Raises ValueError if the group has another backend, or if there is no group.
    """
    group = group or dist.group.WORLD
    if group is None:
        raise ValueError("no process group exists: call init_process_group first")
    backend = group._get_backend(torch.device(device))
    while hasattr(backend, "wrapped_pg"):  # TORCH_DISTRIBUTED_DEBUG=DETAIL wraps it.
        backend = backend.wrapped_pg
    if isinstance(backend, _core.GradwireBackend):
        return backend
    raise ValueError(f"the group's backend for {device} is {backend.name()}, not gradwire")


def _create(group: Any, options: _core.Options | None) -> _core.GradwireBackend:
    if options is not None and not isinstance(options, _core.Options):
        raise ValueError(f"pg_options of backend gradwire must be gradwire.Options(...), "
                         f"not {type(options).__name__}")
    if getattr(group, "enable_reconfigure", False):  # PyTorch 2.14 and newer.
        raise RuntimeError("gradwire's groups cannot be reconfigured (enable_reconfigure=True), "
                           "because its jobs are not elastic: let torchrun restart the ranks")
    if _was_loaded and not dist.is_initialized():
        _refuse_open_store(group.store)
    for adapt in _adaptations:
        adapt()
    given = options if options is not None else _inherited()
    if given is None or not given.inside:
        return _core.create(group, given, first=not dist.is_initialized())
    inside.check(given.inside)
    backend = _core.create(group, given, first=not dist.is_initialized())
    inside.use(backend, group, given.inside)
    return backend


def _inherited() -> _core.Options | None:
    """Returns the options of the default group, for a group that has none. Its hosts may have other
    numbers of ranks, so that it has no backend inside."""
    if not dist.is_initialized():
        return None
    for device in dist.group.WORLD._device_types:  # gradwire may serve only some of them.
        try:
            options = copy.copy(backend_of(device=device).options)
            options.inside = ""
            return options
        except (ValueError, RuntimeError):
            continue
    return None
