"""Reads the checkpoints that `gradwire train` and the C++ library write, whatever number of ranks
wrote them, with safetensors and torch alone:

    import gradwire.checkpoint as checkpoint
    model.load_state_dict(checkpoint.load_state_dict("out"))
    optimizer.load_state_dict(checkpoint.load_optimizer_state_dict("out", model, optimizer))

`path` is a checkpoint (a folder step-N), a folder of them, or a run's output folder: then the
newest. docs/checkpoints.md describes the files.
"""

import json
import os
import pathlib
import re
from collections.abc import Iterator
from typing import Any

import torch
from safetensors import safe_open

__all__ = ["find", "load_manifest", "load_state_dict", "load_optimizer_states",
           "load_optimizer_state_dict"]

Path = str | os.PathLike[str]

_MANIFEST = "manifest.json"
_OPTIMIZER = "optimizer."


def find(path: Path) -> pathlib.Path:
    """The folder of the checkpoint that `path` means. FileNotFoundError if there is none."""
    path = pathlib.Path(path)
    if (path / _MANIFEST).is_file():
        return path
    for folder in (path, path / "checkpoints"):
        complete = [f for f in (folder.iterdir() if folder.is_dir() else ())
                    if re.fullmatch(r"step-[0-9.]+", f.name) and (f / _MANIFEST).is_file()]
        if complete:
            return max(complete, key=lambda f: load_manifest(f)["sequence"])
    raise FileNotFoundError(f"{path}: there is no complete checkpoint in it: no folder step-N with "
                            f"a {_MANIFEST}")


def load_manifest(path: Path) -> dict[str, Any]:
    """What a checkpoint consists of: step, ranks, model, files, tensors, ..."""
    manifest = json.loads((find(path) / _MANIFEST).read_text(encoding="utf-8"))
    if manifest.get("format") != "gradwire checkpoint" or manifest.get("version") != 1:
        raise ValueError(f"{path}: no checkpoint that this version of gradwire reads")
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
    folder = find(path)
    manifest = load_manifest(folder)
    files: dict[int, Any] = {}
    for tensor in manifest["tensors"]:
        if tensor["name"].startswith(_OPTIMIZER) != optimizer:
            continue
        pieces = []
        for index, begin, _, _ in tensor["pieces"]:
            if index not in files:
                files[index] = safe_open(folder / manifest["files"][index]["name"], "pt")
            pieces.append(files[index].get_tensor(f"{tensor['name']}@{begin}"))
        yield tensor["name"], torch.cat(pieces).reshape(tensor["shape"])
