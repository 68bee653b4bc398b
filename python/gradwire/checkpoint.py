"""Reads the checkpoints of `gradwire train` and the C++ library, written by any number of ranks:

    import gradwire.checkpoint as checkpoint
    model.load_state_dict(checkpoint.load_state_dict("out"))
    optimizer.load_state_dict(checkpoint.load_optimizer_state_dict("out", model, optimizer))

`path` is a checkpoint (a folder step-N), or a folder of checkpoints or a run's output folder, of
which the newest is read. All functions raise FileNotFoundError if there is no checkpoint. They
raise ValueError for a damaged one; the message names the file, the problem and the remedy. Sizes
and checksums of the manifest and of every file are verified before any tensor is returned, by the
same code as in C++. docs/checkpoints.md describes the files.
"""

import json
import os
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from gradwire import _core

__all__ = ["find", "load_manifest", "load_state_dict", "load_optimizer_states",
           "load_optimizer_state_dict"]

Path = str | os.PathLike[str]

_OPTIMIZER = "optimizer."
_WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")


def find(path: Path) -> pathlib.Path:
    """Returns the folder of the checkpoint at `path`. If one that may be the newest is damaged,
    raises ValueError that says which checkpoint to remove or to name."""
    return pathlib.Path(_core.find_checkpoint(os.fsencode(path)))


def load_manifest(path: Path) -> dict[str, Any]:
    """Returns a checkpoint's manifest: step, ranks, model, files, tensors, ..."""
    manifest: dict[str, Any] = json.loads(_core.manifest_text(os.fsencode(find(path))))
    return manifest


def load_state_dict(path: Path) -> dict[str, torch.Tensor]:
    """Returns the model {name: tensor}, in the module's order, for Module.load_state_dict()."""
    return {name: tensor for name, tensor in _tensors(path, optimizer=False)}


def load_optimizer_states(path: Path) -> dict[str, dict[str, torch.Tensor]]:
    """Returns the optimizer states {parameter: {"exp_avg": tensor, "step": tensor, ...}}."""
    states: dict[str, dict[str, torch.Tensor]] = {}
    for name, tensor in _tensors(path, optimizer=True):
        state, parameter = name[len(_OPTIMIZER):].split(".", 1)
        # PyTorch counts steps in float32.
        states.setdefault(parameter, {})[state] = tensor.float() if state == "step" else tensor
    return states


def load_optimizer_state_dict(
    path: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer
) -> dict[str, Any]:
    """Returns the optimizer states for Optimizer.load_state_dict(). `optimizer` must have the
    model's parameters, in any groups; its settings are kept. The model may be wrapped, by
    DistributedDataParallel or torch.compile. Raises ValueError if no parameter has a state."""
    states = load_optimizer_states(path)
    names = {id(parameter): _unwrapped(name) for name, parameter in model.named_parameters()}
    if states and not states.keys() & set(names.values()):
        raise ValueError(f"{find(path)} has optimizer states of {_some(states)}, but this model "
                         f"has parameters {_some(names.values())}: pass the model as it was saved, "
                         "or use another checkpoint")
    result = optimizer.state_dict()
    for group, packed in zip(optimizer.param_groups, result["param_groups"]):
        for parameter, index in zip(group["params"], packed["params"]):
            if names[id(parameter)] in states:
                result["state"][index] = states[names[id(parameter)]]
    return result


def _unwrapped(name: str) -> str:
    """Returns a parameter's name without what DistributedDataParallel, torch.compile, FSDP and
    activation checkpoints put before the names of what they wrap."""
    parts = [part for part in name.split(".") if part not in _WRAPPERS]
    return ".".join(parts[1:] if parts[0] == "module" else parts)


def _some(names: Iterable[str]) -> str:
    """Returns the first names, for messages."""
    listed = sorted(names)
    return ", ".join(listed[:3]) + (", ..." if len(listed) > 3 else "")


def _tensors(path: Path, optimizer: bool) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields (name, tensor) of the model or of its optimizer."""
    checkpoint = _core.VerifiedCheckpoint(os.fsencode(find(path)))
    for name in checkpoint.names(optimizer):
        yield name, checkpoint.read(name)
