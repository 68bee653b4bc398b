"""A client of federated learning, which trains a PyTorch module on data that stay here.

    client = gradwire.FederatedClient("phone-17.json", module, dataset)
    client.run(on_round=print)               # until the server has no more rounds

The server is `gradwire federate serve`, with the first values of the same module in a safetensors
file: docs/federated.md.
"""

import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils.data import Dataset

from gradwire import _core
from gradwire.local_training import Evaluated, LocalModel, LocalTraining, Loss, Optimizers


@dataclass(frozen=True)
class FederatedLimits:
    """Bounds on what a client gives, in a round and in a day of UTC; 0: none.

    round_s, day_s: seconds of compute. round_up, day_up, round_down, day_down: bytes.
    memory: bytes that the model may need, as the server says.
    """

    round_s: float = 0
    day_s: float = 0
    round_up: float = 0
    day_up: float = 0
    round_down: float = 0
    day_down: float = 0
    memory: int = 0


@dataclass(frozen=True)
class FederatedRound:
    """A client's part in a round.

    steps, all_steps: of training, done and of the server's plan. training_loss: mean of the steps.
    before: the server's model on the held-out samples, if there are any.
    counted: the update is in the server's sum; reason: why it is not.
    """

    round: int
    steps: int
    all_steps: int
    training_loss: float
    counted: bool
    reason: str = ""
    before: Evaluated = field(default_factory=Evaluated)


class FederatedClient:
    """Takes part in federated learning, as the server plans it: trains `module` on `dataset`, and
    sends the change of the parameters.

    identity: the file of `gradwire federate enrol`. Beside it, in NAME.state, the client keeps what
        it spent today, and its last round.
    dataset: pairs of inputs and targets. held_out: samples on which the server's model is tested
        before each training; the server learns the sums over the clients.
    optimizer: makes the local optimizer, anew in each round; None: the server's plan does (sgd,
        adam or adagrad). loss: (outputs, targets) -> the mean loss of a batch.
    server: HOST:PORT; "": the identity's.
    plugged: takes part only while this machine is plugged in. eligible: only while this shell
        command exits with status 0, or this function returns True. Both are looked at before a
        round, and every 10 s while it trains. The function may be called on another thread.
    limits: rounds that cost more are declined, and a training ends at them.
    secure: uploads only updates that the server cannot read. secure_active: implies secure, and
        protects from a server that lies; keys and lists must be signed. secure_threshold: implies
        secure; the least threshold t (None: 2). A sum contains the updates of at least t others.
    give_up_s: the longest absence of the server; meanwhile the client connects again and again.

    The module's trainable parameters and floating buffers must have the names and shapes of the
    server's tensors, and be float32 on the CPU. After a round they are those of the client's own
    training. Each client needs a module of its own. Raises ValueError for arguments, RuntimeError
    for what the network does, or if the server does not know the identity. Calls end by
    KeyboardInterrupt, and with it the client. Not thread-safe, but for stop().
    """

    def __init__(
        self,
        identity: str | os.PathLike[str],
        module: torch.nn.Module,
        dataset: Dataset,
        *,
        optimizer: Optimizers | None = None,
        loss: Loss = torch.nn.functional.cross_entropy,
        held_out: Dataset | None = None,
        server: str = "",
        plugged: bool = False,
        eligible: str | Callable[[], bool] | None = None,
        limits: FederatedLimits | None = None,
        secure: bool = False,
        secure_active: bool = False,
        secure_threshold: int | None = None,
        give_up_s: float = 600,
    ) -> None:
        if len(dataset) < 1:  # type: ignore[arg-type]
            raise ValueError("FederatedClient: the data set needs at least one sample")
        settings = _core.FederatedClientSettings()
        settings.identity, settings.server = os.fspath(identity), server
        settings.plugged, settings.give_up_s = plugged, give_up_s
        settings.command = eligible if isinstance(eligible, str) else ""
        settings.test = eligible if callable(eligible) else None
        settings.limits = _limits(limits or FederatedLimits())
        settings.secure, settings.active = secure, secure_active
        settings.least_threshold = secure_threshold
        self._participant = _core.FederatedParticipant(settings)
        self._model, self._dataset, self._held_out = LocalModel(module), dataset, held_out
        self._optimizer, self._loss = optimizer, loss
        self._is_known = False  # The tensors of the server.

    def configuration(self) -> dict[str, Any]:
        """Returns the sections "model", "data", "partition" and "seed" of the server's
        configuration."""
        return json.loads(self._participant.configuration())

    def run(self, on_round: Callable[[FederatedRound], None] | None = None) -> int:
        """Takes part until the server has no more rounds, or stop(). Returns how often it
        counted. `on_round` is called after each round in which the client had a part."""
        counted = 0
        while (done := self.next()) is not None:
            counted += done.counted
            if on_round is not None:
                on_round(done)
        return counted

    def next(self) -> FederatedRound | None:
        """Waits for a round that needs this client, and takes part. Returns None if the server has
        no more rounds, and after stop()."""
        if not self._is_known:
            self._participant.set_tensors([
                (name, list(one.shape))
                for name, one in zip(self._model.names, self._model.tensors, strict=True)])
            self._is_known = True
        work = self._participant.begin(len(self._dataset))  # type: ignore[arg-type]
        if work is None:
            return None
        try:
            before, all_steps, (update, steps, loss) = self._train(work)
        except BaseException:  # The others of the round need not wait; its text stays here.
            self._participant.leave()
            raise
        counted, reason = self._participant.end(update, steps, loss, *before, all_steps)
        return FederatedRound(work.round, steps, all_steps, loss, counted, reason, before)

    def stop(self) -> None:
        """Makes run() leave its round and return, for good; from any thread."""
        self._participant.stop()

    def _train(self, work: _core.FederatedWork) -> tuple[Evaluated, int, tuple[Any, ...]]:
        self._model.values.copy_(work.model)
        training = LocalTraining(
            self._model, {work.client: self._dataset}, work.batch_size,
            self._optimizer or _optimizer_of(json.loads(work.optimizer)), self._loss,
            work.proximal, work.seed)
        before = Evaluated() if self._held_out is None else training.evaluate(self._held_out)
        trained = training.train(work.client, work.round, work.epochs, self._participant.goes_on)
        return before, training.steps(work.client, work.epochs), trained[:3]


def _limits(given: FederatedLimits) -> _core.FederatedLimits:
    limits = _core.FederatedLimits()
    limits.round = _cost(given.round_s, given.round_up, given.round_down)
    limits.day = _cost(given.day_s, given.day_up, given.day_down)
    limits.memory_bytes = given.memory
    return limits


def _cost(compute_s: float, up_bytes: float, down_bytes: float) -> _core.FederatedCost:
    cost = _core.FederatedCost()
    cost.compute_s, cost.up_bytes, cost.down_bytes = compute_s, up_bytes, down_bytes
    return cost


def _optimizer_of(plan: dict[str, Any]) -> Optimizers:
    """The local optimizer of a server's plan."""
    rate, decay = plan["learning_rate"], plan.get("weight_decay", 0)

    def make(parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
        if plan["name"] == "sgd":
            return torch.optim.SGD(parameters, rate, plan.get("momentum", 0), 0, decay,
                                   nesterov=plan.get("nesterov", False))
        if plan["name"] == "adam":
            return torch.optim.Adam(parameters, rate, (plan["beta1"], plan["beta2"]),
                                    plan["epsilon"], decay)
        if plan["name"] == "adagrad":
            return torch.optim.Adagrad(parameters, rate, 0, decay, eps=plan["epsilon"])
        raise ValueError(f"the server's plan has the local optimizer {plan['name']}: give "
                         "FederatedClient an `optimizer` that makes it")

    return make
