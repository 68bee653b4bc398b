"""What of the C++ library Python sees. `gradwire` is its public face."""

from datetime import timedelta
from typing import Any

from torch import Tensor
from torch.distributed import Store

class Options:
    """What a group is made with: see gradwire.Options. None: what the environment says."""

    interface: str | None
    secret: str | None
    port: int | None
    shared_memory: bool | None
    encryption: bool | None
    codec: str
    algorithm: str
    topology: str
    dead_peer_timeout: timedelta
    def __init__(self) -> None: ...

class ProcessGroupGradwire:
    """A torch.distributed Backend."""

class GradwireBackend(ProcessGroupGradwire):
    """What gradwire.backend_of() finds behind a group."""

    @property
    def options(self) -> Options:
        """What the group was made with."""

    @property
    def bytes_sent(self) -> int:
        """Bytes that this rank has handed to the network so far, payload and headers."""

    def algorithm_for(self, collective: str, bytes: int) -> str:
        """The algorithm that such an operation ("all_reduce", ...) of so many bytes takes: the one
        that the options name, else the tuner's choice. The same on all ranks. Raises ValueError: no
        such collective."""

    def add_codec_hook(self, reducer: Any, codec: str, warmup_steps: int, seed: int) -> CodecHook:
        """What gradwire.hooks.register does, which describes the arguments. `reducer` is that of a
        DistributedDataParallel. Raises ValueError: no such codec; RuntimeError: it has a hook."""

    def perform_nocolor_split(self, device: Any) -> None:
        """Nothing: torch.distributed calls it where a rank is in no part of a split."""

    def shutdown(self) -> None:
        """Says goodbye to the peers; what is under way fails. Returns when callbacks have run."""

    def abort(self) -> None:
        """Fails whatever is under way, here and on the peers."""

class CodecHook:
    """What is behind gradwire.hooks.Hook."""

    def describe(self) -> str:
        """One line: what travels how, and why."""

    def state(self) -> list[tuple[str, Tensor]]:
        """This rank's error feedback by name, copied; of one dimension each. Between steps."""

    def load_state(self, saved: list[tuple[str, Tensor]]) -> None:
        """Takes over what state() was; kept until the codec begins. Between steps. Raises
        ValueError that names what has another size, if it has begun."""

class StepTrace:
    """What is behind gradwire.tracing.Trace."""

    def now(self) -> int:
        """Nanoseconds of the clock that spans are recorded on."""

    def begin_step(self, number: int) -> None:
        """What is recorded from now on belongs to this step."""

    def record(self, name: str, begin: int, bytes: int) -> None:
        """A span from `begin` (of now()) until now. bytes: what it moved, or 0."""

    def follow(self, hook: CodecHook) -> None:
        """From now on the hook's buckets are spans. Before its first backward."""

    def finish(self) -> str | None:
        """Writes the file; on rank 0 the summary. Collective, and the end. Raises RuntimeError."""

class GradwireStore(Store):
    """The job's own store, for those who know its secret."""

    @property
    def host(self) -> str:
        """Name or address of rank 0's host."""

    @property
    def port(self) -> int:
        """Where rank 0 serves it."""

def open_store(variables: dict[str, str], timeout: timedelta) -> tuple[Store, int, int]:
    """The store, this process's rank and the world size, as the environment has them; `variables`
    go before it. Rank 0 serves the store. Blocks until rank 0 is there. Raises ValueError,
    RuntimeError."""

def close_stores(failed: bool) -> None:
    """Leaves every store of this process that lives. Not failed: rank 0 waits for the others, two
    seconds at most."""

def create(group: Any, options: Options | None, first: bool) -> GradwireBackend:
    """The backend of a group, as torch.distributed makes it (its DistributedBackendOptions). Blocks
    until its ranks have met. `first`: what is to be said once a process is said now. Raises
    ValueError, RuntimeError."""

def close_all() -> None:
    """Shuts down every group of this process that lives."""

def trace(backend: ProcessGroupGradwire, file: str) -> StepTrace:
    """Begins a trace, whose `file` rank 0 writes. Collective. Raises RuntimeError."""

class VerifiedCheckpoint:
    """A checkpoint all of whose files have been compared with their sizes and checksums. Raises
    ValueError that names the file if one is not as it was written."""

    def __init__(self, path: bytes) -> None: ...
    def names(self) -> list[str]:
        """Of all tensors, the optimiser's too, in the order in which they were saved."""

    def read(self, name: str) -> Tensor:
        """A whole tensor. Raises ValueError."""

def find_checkpoint(path: bytes) -> str:
    """The checkpoint's folder that `path` means. Raises FileNotFoundError if there is none,
    ValueError if one that may be the newest is damaged."""

def manifest_text(path: bytes) -> str:
    """A checkpoint's manifest as it is written, checked. Raises ValueError that names it."""
