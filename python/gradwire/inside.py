"""Groups in two levels: another backend inside a host, gradwire between hosts."""

from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from gradwire import _core

OWN = "own"  # gradwire's own, through shared memory.


def check(name: str) -> None:
    """Raises ValueError unless a backend of this name can be used inside a host."""
    if name in ("", OWN) or name.upper() in dist.Backend._plugins:
        return
    if name == "gloo" and dist.is_gloo_available():
        return
    if name == "nccl":
        if not dist.is_nccl_available():
            raise ValueError(f"inside=\"nccl\": PyTorch {torch.__version__} is built without NCCL")
        if not torch.cuda.is_available():
            raise ValueError("inside=\"nccl\": this machine has no GPU that PyTorch can use")
        return
    known = sorted({"gloo", "nccl", OWN, *(key.lower() for key in dist.Backend._plugins)}
                   - {"gradwire"})
    raise ValueError(f"inside={name!r} is no backend; it has {', '.join(known)}")


def use(backend: _core.GradwireBackend, group: Any, name: str) -> None:
    """Makes a group of gradwire's, which has had no operation yet, use the backend `name` between
    ranks of one host. Collective. `group`: what torch.distributed describes to a backend. Raises
    RuntimeError if hosts have different numbers of ranks."""
    grid = backend.host_grid(_machine())
    ranks = grid.inside
    if len(ranks) == 1:
        return
    made = []
    if name != OWN:
        for use_of in ("reductions", "gathers"):
            store = dist.PrefixStore(f"inside/{ranks[0]}/{use_of}", group.store)
            made.append(_create(name, store, group, ranks))
    backend.use_inside(grid, *made)


def _machine() -> str:
    return _core.machine_identity()


def _create(name: str, store: dist.Store, group: Any, ranks: list[int]) -> Any:
    rank = ranks.index(group.group_rank)
    if name == "gloo":
        options = dist.ProcessGroupGloo._Options()
        options._timeout = group.timeout
        # These ranks share a network namespace. Gloo does not authenticate: no card may be used.
        options._devices = [dist.ProcessGroupGloo.create_device(hostname="127.0.0.1")]
        return dist.ProcessGroupGloo(store, rank, len(ranks), options)
    everywhere = list(group.global_ranks_in_group) or list(range(group.group_size))
    if name == "nccl":
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = group.timeout
        options.global_ranks_in_group = [everywhere[r] for r in ranks]
        return dist.ProcessGroupNCCL(store, rank, len(ranks), options)
    plugin = dist.Backend._plugins[name.upper()]
    if not plugin.extended_api:
        return plugin.creator_fn(store, rank, len(ranks), group.timeout)
    described = distributed_c10d._DistributedBackendOptions()
    described.store, described.timeout = store, group.timeout
    described.group_rank, described.group_size = rank, len(ranks)
    described.group_id = f"{group.group_id}/inside/{ranks[0]}"
    described.global_ranks_in_group = [everywhere[r] for r in ranks]
    return plugin.creator_fn(described, None)
