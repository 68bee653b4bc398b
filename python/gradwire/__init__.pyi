import os
from datetime import timedelta
from typing import Any

import torch
from torch.distributed import ProcessGroup

from gradwire import federated as federated
from gradwire import hooks as hooks
from gradwire import pipeline as pipeline
from gradwire import tools as tools
from gradwire._core import GradwireBackend
from gradwire._core import Options as _Options
from gradwire.device_parallel import DeviceParallel as DeviceParallel
from gradwire.federated_client import FederatedClient as FederatedClient
from gradwire.federated_client import FederatedLimits as FederatedLimits
from gradwire.federated_client import FederatedRound as FederatedRound
from gradwire.hooks import Hook
from gradwire.served import Served as Served
from gradwire.served_embedding import ServedEmbedding as ServedEmbedding
from gradwire.tracing import Trace

__version__: str

def Options(
    *,
    algorithm: str = ...,
    codec: str = ...,
    dead_peer_timeout: timedelta = ...,
    encryption: bool = ...,
    engine: str = ...,
    inside: str = ...,
    interface: str = ...,
    port: int = ...,
    secret: str = ...,
    shared_memory: bool = ...,
    topology: str = ...,
) -> _Options: ...
def backend_of(
    group: ProcessGroup | None = None, device: str | torch.device = "cpu"
) -> GradwireBackend: ...
def register() -> None: ...
def plan(**options: Any) -> dict[str, Any]: ...
def probe(output: str | os.PathLike[str] | None = None, **options: Any) -> dict[str, Any]: ...
def trace(
    file: str | os.PathLike[str], group: ProcessGroup | None = None, hook: Hook | None = None
) -> Trace: ...
