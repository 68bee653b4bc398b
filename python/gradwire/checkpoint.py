"""Reads the checkpoints that `gradwire train` and the C++ library write, whatever number of ranks
wrote them:

    import gradwire.checkpoint as checkpoint
    model.load_state_dict(checkpoint.load_state_dict("out"))
    optimizer.load_state_dict(checkpoint.load_optimizer_state_dict("out", model, optimizer))

`path` is a checkpoint (a folder step-N), a folder of them, or a run's output folder: then the
newest. All functions raise FileNotFoundError if there is none, and ValueError, which names the
file, what is wrong and the remedy, for one that is damaged: the manifest, and before any tensor is
returned every file, is compared with its size and checksum, by the same code as in C++.
docs/checkpoints.md describes the files.
"""

import json
import os
import pathlib
from collections.abc import Iterator
from typing import Any

import torch

from gradwire import _core

__all__ = ["find", "load_manifest", "load_state_dict", "load_optimizer_states",
           "load_optimizer_state_dict"]

Path = str | os.PathLike[str]

_OPTIMIZER = "optimizer."


def find(path: Path) -> pathlib.Path:
    """The folder of the checkpoint that `path` means. Where one in a folder is damaged, none is the
    newest: ValueError says which to remove or to name."""
    return pathlib.Path(_core.find_checkpoint(os.fsencode(path)))


def load_manifest(path: Path) -> dict[str, Any]:
    """What a checkpoint consists of: step, ranks, model, files, tensors, ..."""
    manifest: dict[str, Any] = json.loads(_core.manifest_text(os.fsencode(find(path))))
    return manifest


def load_state_dict(path: Path) -> dict[str, torch.Tensor]:
    """The model: {name: tensor}, in the order of the module, for Module.load_state_dict()."""
    return {name: tensor for name, tensor in _tensors(path, optimizer=False)}


def load_optimizer_states(path: Path) -> dict[str, dict[str, torch.Tensor]]:
    """The optimiser's states: {parameter: {"exp_avg": tensor, "step": tensor, ...}}."""
    states: dict[str, dict[str, torch.Tensor]] = {}
    for name, tensor in _tensors(path, optimizer=True):
        state, parameter = name[len(_OPTIMIZER):].split(".", 1)
        # PyTorch counts steps in float32.
        states.setdefault(parameter, {})[state] = tensor.float() if state == "step" else tensor
    return states


def load_optimizer_state_dict(
    path: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer
) -> dict[str, Any]:
    """The same for Optimizer.load_state_dict(): `optimizer` has the model's parameters, in any
    groups, and settings that stay as they are."""
    states = load_optimizer_states(path)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    result = optimizer.state_dict()
    for group, packed in zip(optimizer.param_groups, result["param_groups"]):
        for parameter, index in zip(group["params"], packed["params"]):
            if names[id(parameter)] in states:
                result["state"][index] = states[names[id(parameter)]]
    return result


def _tensors(path: Path, optimizer: bool) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields (name, tensor) of the model or of its optimiser."""
    checkpoint = _core.VerifiedCheckpoint(os.fsencode(find(path)))
    for name in checkpoint.names():
        if name.startswith(_OPTIMIZER) == optimizer:
            yield name, checkpoint.read(name)
