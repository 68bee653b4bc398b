"""Optimizers of a parameter server's parts of a model."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.nn import Parameter

from gradwire import _core

# Called with the parameters of one unit: (name, parameter) pairs.
Factory = Callable[[list[tuple[str, Parameter]]], torch.optim.Optimizer]

_DEFAULTS: dict[str, dict[str, Any]] = {
    "sgd": {"lr": 1e-3, "momentum": 0.0, "dampening": 0.0, "weight_decay": 0.0, "nesterov": False},
    "adam": {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0},
    "adagrad": {"lr": 1e-2, "lr_decay": 0.0, "weight_decay": 0.0, "eps": 1e-10,
                "initial_accumulator_value": 0.0},
}

# They treat each element apart, so that a server can step any part of a parameter.
_PER_ELEMENT = ("ASGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "NAdam", "RAdam",
                "RMSprop", "Rprop", "SGD")


def builtin(name: str, options: dict[str, Any]) -> _core.BuiltinOptimizer:
    """Returns an optimizer that steps without Python. Raises ValueError for an unknown name or
    option, and for values out of range."""
    if name not in _DEFAULTS:
        raise ValueError(f"optimizer {name!r} is none of {', '.join(_DEFAULTS)}: choose one of "
                         "them, or pass a function that makes an optimizer of parameters")
    values = _DEFAULTS[name] | options
    unknown = sorted(values.keys() - _DEFAULTS[name].keys())
    if unknown:
        raise ValueError(f"optimizer {name!r} has no option {', '.join(unknown)}; it has "
                         f"{', '.join(_DEFAULTS[name])}")
    if "betas" in values:
        values["beta1"], values["beta2"] = values.pop("betas")
    for option, value in values.items():
        end = 1 if option in ("beta1", "beta2") else math.inf
        if not 0 <= value < end:
            raise ValueError(f"optimizer {name!r}: {option} is {value}; it must be 0 or more" +
                             (", and less than 1" if end == 1 else ""))
    if values.get("nesterov") and (values["momentum"] == 0 or values["dampening"] != 0):
        raise ValueError("optimizer 'sgd': nesterov needs a momentum, and no dampening")
    made = _core.BuiltinOptimizer(name)
    for option, value in values.items():
        setattr(made, option, value)
    return made


class Member(NamedTuple):
    """A parameter of a unit."""

    name: str
    parameter: torch.Tensor
    offset: int  # Where its first element is, in the unit.


class Part(NamedTuple):
    """Consecutive elements of a member that a server has."""

    member: int
    begin: int  # In the member.
    end: int
    offset: int  # In the server's part of the unit.


def parts_of(members: Sequence[Member], begin: int, end: int) -> list[Part]:
    """Returns what the elements from `begin` to `end` of a unit have of its members."""
    parts = []
    for index, member in enumerate(members):
        first = max(begin, member.offset)
        last = min(end, member.offset + member.parameter.numel())
        if first < last:
            parts.append(Part(index, first - member.offset, last - member.offset, first - begin))
    return parts


class ShardOptimizer:
    """The optimizer of a server's part of one unit. The factory makes it for the unit's whole
    parameters; then their parts on this server take their place, one-dimensional, in each group."""

    def __init__(
        self, factory: Factory, members: Sequence[Member], shard: torch.Tensor, begin: int,
        per_element: bool
    ) -> None:
        whole = [Parameter(member.parameter.detach().clone()) for member in members]
        self._optimizer = _made(factory, [(m.name, p) for m, p in zip(members, whole)], per_element)
        index_of = {id(parameter): index for index, parameter in enumerate(whole)}
        parts: dict[int, list[Part]] = {}
        for part in parts_of(members, begin, begin + shard.numel()):
            parts.setdefault(part.member, []).append(part)
        self._ranges: list[tuple[Parameter, slice]] = []
        for group in self._optimizer.param_groups:
            group.pop("param_names", None)  # Those of whole parameters.
            placed = []
            for parameter in group["params"]:
                if id(parameter) not in index_of:
                    raise ValueError("the optimizer has a parameter that its factory did not get")
                for part in parts.get(index_of[id(parameter)], ()):
                    placed.append(self._place(part, parameter, shard))
                self._optimizer.state.pop(parameter, None)
            group["params"] = placed

    def _place(self, part: Part, whole: Parameter, shard: torch.Tensor) -> Parameter:
        """Returns the part as a parameter, with what the optimizer knows of it already."""
        where = slice(part.offset, part.offset + part.end - part.begin)
        placed = Parameter(shard[where])
        state = self._optimizer.state.get(whole, {})
        if state:
            self._optimizer.state[placed] = {
                key: value.flatten()[part.begin:part.end].clone()
                if isinstance(value, torch.Tensor) and value.shape == whole.shape else value
                for key, value in state.items()}
        self._ranges.append((placed, where))
        return placed

    def step(self, gradient: torch.Tensor, rate: float) -> None:
        """Steps at `rate` times the learning rates."""
        groups = self._optimizer.param_groups
        before = [group["lr"] for group in groups]
        for parameter, where in self._ranges:
            parameter.grad = gradient[where]
        try:
            for group, lr in zip(groups, before):
                group["lr"] = rate * lr if rate != 1 else lr
            self._optimizer.step()
        finally:
            for group, lr in zip(groups, before):
                group["lr"] = lr
            for parameter, _ in self._ranges:
                parameter.grad = None


def _made(
    factory: Factory, parameters: list[tuple[str, Parameter]], per_element: bool
) -> torch.optim.Optimizer:
    made = factory(parameters)
    if not isinstance(made, torch.optim.Optimizer):
        raise TypeError(f"optimizer made a {type(made).__name__} of the parameters, and no "
                        "torch.optim.Optimizer")
    if type(made).__name__ not in _PER_ELEMENT and not per_element:
        raise ValueError(
            f"{type(made).__name__} may not treat each element apart, and a server has parts of "
            f"parameters: use one of {', '.join(_PER_ELEMENT)}, or pass "
            "optimizer_is_per_element=True if it does")
    return made
