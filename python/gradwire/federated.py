"""Federated learning, simulated in this process.

    from gradwire import federated
    result = federated.simulate(module, datasets, rounds=200, use=10)
    print(result.rounds[-1])                 # and `module` has the trained parameters

`datasets` has one data set for each client. Rounds, devices and networks are in virtual time, and
only the updates that count are trained: docs/federated.md.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils.data import Dataset

from gradwire import _core
from gradwire.local_training import LocalModel, LocalTraining, Loss, Optimizers

_ABANDONED_IN_A_ROW = 20


@dataclass
class Devices:
    """Simulated devices. Times and rates are (median, standard deviation of the logarithm).

    compute_s: seconds of the local work of a client with the mean number of samples.
    up, down: bytes per second.
    eligible: share of the clients that check in to a round.
    drop: share of the asked clients that vanish during a round.
    stragglers: share of the asked clients that do a part of the local epochs, of 2 or more.
    """

    compute_s: tuple[float, float] = (10, 0.5)
    up: tuple[float, float] = (6e5, 0.5)
    down: tuple[float, float] = (2.5e6, 0.5)
    eligible: float = 1
    drop: float = 0
    stragglers: float = 0


@dataclass
class Result:
    """The end of a simulation.

    rounds: for each round what `gradwire federate simulate --json` has; "accuracy" and "loss" are
        on `test` if it was given.
    counted: for each client, in how many rounds its update counted.
    jain: Jain's index of `counted`: 1 if all clients counted equally often.
    """

    rounds: list[dict[str, Any]] = field(default_factory=list)
    counted: list[int] = field(default_factory=list)
    jain: float = 1


def simulate(
    module: torch.nn.Module,
    datasets: Sequence[Dataset],
    *,
    rounds: int = 100,
    use: int = 10,
    ask: int | None = None,
    least: int = 1,
    window_s: float = 60,
    select: str = "uniform",
    epochs: int = 1,
    batch_size: int = 10,
    optimizer: Optimizers = lambda parameters: torch.optim.SGD(parameters, lr=0.05),
    loss: Loss = torch.nn.functional.cross_entropy,
    server_optimizer: Optimizers = lambda parameters: torch.optim.SGD(parameters, lr=1.0),
    proximal: float = 0,
    partial: str = "count",
    bits: int = 32,
    rotate: bool = False,
    mask: float = 1,
    clip: float = 0,
    secure: bool = False,
    devices: Devices | None = None,
    test: Dataset | None = None,
    test_every: int = 1,
    seed: int = 1,
    on_round: Callable[[dict[str, Any]], None] | None = None,
) -> Result:
    """Trains `module` by federated averaging over clients that exist only here.

    rounds: that commit; `ask` clients (default: `use`) are asked, and the first `use` that are
        ready count. Below `least` updates a round is abandoned.
    epochs, batch_size: local training of each client; batch_size 0: all its samples.
    optimizer: makes a client's optimizer, anew in each round. server_optimizer: makes that of the
        server, which steps on minus the mean update.
    loss: (outputs, targets) -> the mean loss of a batch.
    proximal: mu of FedProx. partial: what happens to work that is not complete when the window of
        `window_s` seconds ends: "count", "drop" or "normalize".
    bits, rotate, mask, clip: how updates become integers; secure: they are masked.
    test: data on which the model is tested after each `test_every` rounds.

    The module's floating buffers are averaged as parameters are. Its device must be the CPU. The
    same arguments give the same result, as does a server of gradwire.FederatedClient. Raises
    ValueError, and RuntimeError if 20 rounds in a row are abandoned. Seeds torch's random numbers.
    """
    settings = _core.FederatedSettings()
    settings.use, settings.ask, settings.least = use, ask if ask is not None else use, least
    settings.window_s, settings.select, settings.epochs = window_s, select, epochs
    settings.bits, settings.rotate, settings.mask, settings.clip = bits, rotate, mask, clip
    settings.secure, settings.partial, settings.seed = secure, partial, seed
    for name, value in vars(devices or Devices()).items():
        setattr(settings, name, list(value) if isinstance(value, tuple) else value)
    samples = [len(one) for one in datasets]  # type: ignore[arg-type]
    if min(samples, default=0) < 1:
        raise ValueError("simulate: each client needs a data set with at least one sample")
    model = _GlobalModel(module, server_optimizer)
    machine = _core.FederatedRounds(settings, samples, model.values.numel())
    trainer = LocalTraining(model, datasets, batch_size, optimizer, loss, proximal,
                            machine.training_seed())
    result = Result()
    for record, committed in _rounds(machine, model, trainer, rounds):
        is_due = committed % test_every == 0 or committed == rounds
        if test is not None and is_due and not record["abandoned"]:
            record["accuracy"], record["loss"] = trainer.evaluate(test).means()
        result.rounds.append(record)
        if on_round is not None:
            on_round(record)
    model.load()
    result.counted, result.jain = machine.counted(), machine.jain()
    return result


def _rounds(machine: _core.FederatedRounds, model: "_GlobalModel", trainer: LocalTraining,
            rounds: int) -> Iterator[tuple[dict[str, Any], int]]:
    """Yields the record of each round, and how many have committed, after the model's step."""
    committed = abandoned = 0
    while committed < rounds:
        record, update = machine.next(trainer.train)
        if update is None:
            abandoned += 1
            if abandoned == _ABANDONED_IN_A_ROW:
                raise RuntimeError(
                    f"{abandoned} rounds in a row were abandoned, the last one because "
                    f"{record['reason']}: lower `least`, or ask more clients")
        else:
            abandoned = 0
            committed += 1
            model.step(update)
        yield record, committed


class _GlobalModel(LocalModel):
    """The global parameters, and the server's optimizer."""

    def __init__(self, module: torch.nn.Module, server_optimizer: Optimizers) -> None:
        super().__init__(module)
        self.optimizer = server_optimizer(self.shaped)

    @torch.no_grad()
    def step(self, update: torch.Tensor) -> None:
        at = 0
        for one in self.shaped:
            one.grad = update[at : at + one.numel()].neg().view(one.shape)
            at += one.numel()
        self.optimizer.step()
        self.values[at:] += update[at:]
