"""Training with parameter servers.

    model = gradwire.Served(net, optimizer=functools.partial(torch.optim.SGD, lr=0.1), mode="async")
    for inputs, targets in batches:
        loss(model(inputs), targets).backward()    # gradients leave as they are ready
        model.step()                               # parameters come back before the next forward
    model.synchronize()                            # the same parameters on all workers

Without `gradwire run --servers K`, servers are threads beside workers. With it, the last K ranks
serve: they run the same program, which ends in Served's constructor. docs/servers.md has the modes.
"""

import contextlib
import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple, Self

import torch
import torch.distributed as dist

from gradwire import _core
from gradwire.serving import Leaving, end_server, group_or_world
from gradwire.shard_optimizers import Factory, Member, ShardOptimizer, builtin


class Deal(NamedTuple):
    """A batch of Served.take(): positions in the order of the samples of an epoch."""

    epoch: int
    begin: int
    count: int  # 0: all samples are applied.


class Served(Leaving, torch.nn.Module):
    """Wraps a module on the CPU, whose gradients workers push to parameter servers and whose
    parameters they pull. A server has the same elements of every unit, and steps them with its own
    optimizer. In mode "sync" the parameters have the bits of an all-reduce that adds in the order
    of ranks.

    optimizer: a function that makes a torch.optim.Optimizer of (name, parameter) pairs, such as
        functools.partial(torch.optim.AdamW, lr=1e-3). The servers call it for each unit, with the
        whole parameters; then their parts on the server take their place, one-dimensional. It must
        treat each element apart. Or "sgd", "adam", "adagrad": torch.optim's, which step without
        Python and take `optimizer_options`, such as {"lr": 0.1, "momentum": 0.9}.
    mode: "sync", "ssp:S" or "async". use, rate, pull_every: as "servers" of `gradwire train`.
    servers: number of servers beside workers, the first ones; 0: one on each. Ignored if `gradwire
        run --servers` has given them ranks of their own.
    samples, epochs: samples of an epoch, which take() deals; 0: workers choose their own.
    broadcast_buffers: forwards in training mode begin with the buffers of worker 0, in mode "sync"
        with `use` 1. Otherwise each worker has its own.
    codec, codec_warmup_steps, codec_seed: of the gradients, with error feedback; pull_codec: "bf16"
        halves the parameters on their way back. Units of fewer than codec_min_elements have none.
    process_group: of the workers, or of the servers; None: the default group.
    optimizer_is_per_element: says so of an optimizer that is none of torch.optim's.

    The parameters become views of one tensor for each unit, which other code must not replace. Call
    backward once for each step(), others under no_sync(). Load a state_dict into the module before.
    All arguments must be the same on workers and servers. Collective. Raises ValueError, TypeError
    for arguments, RuntimeError for what communication does. Not thread-safe.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        *,
        optimizer: Factory | str,
        optimizer_options: dict[str, Any] | None = None,
        mode: str = "sync",
        use: float = 1.0,
        rate: str = "none",
        pull_every: int = 1,
        servers: int = 0,
        samples: int = 0,
        epochs: int = 1,
        broadcast_buffers: bool = True,
        bucket_cap_mb: float = 4.0,
        codec: str = "none",
        codec_min_elements: int = 1024,
        codec_warmup_steps: int = 0,
        codec_seed: int = 1,
        pull_codec: str = "none",
        process_group: dist.ProcessGroup | None = None,
        optimizer_is_per_element: bool = False,
    ) -> None:
        torch.nn.Module.__init__(self)
        self.module = module
        settings = _settings(
            servers=servers, mode=mode, use=use, rate=rate, pull_every=pull_every,
            bucket_cap_mb=bucket_cap_mb, codec=codec, codec_min_elements=codec_min_elements,
            codec_warmup_steps=codec_warmup_steps, codec_seed=codec_seed, pull_codec=pull_codec)
        stepping = _stepping(optimizer, optimizer_options)
        self._group = group_or_world(process_group, "Served")
        self._parameters_by_name = _trainable(module)
        self._core = _core.ServedRank(self._group, list(self._parameters_by_name.items()), settings)
        if self._core.server >= 0:
            self._serve(stepping, optimizer_is_per_element)
        self._work(broadcast_buffers)
        self._samples = samples * epochs
        self._taken = 0
        if samples > 0:
            self._core.deal(samples, epochs)

    # The server.

    def _serve(self, stepping: Factory | _core.BuiltinOptimizer, per_element: bool) -> None:
        core, values, optimizers = self._core, [], []
        for members, elements in zip(self._units(), core.elements):
            count = elements // core.servers
            begin = core.server * count
            values.append(torch.zeros(count, dtype=members[0].parameter.dtype))
            if callable(stepping):
                optimizers.append(ShardOptimizer(stepping, members, values[-1], begin, per_element))
        if callable(stepping):
            core.serve(values, lambda unit, gradient, rate: optimizers[unit].step(gradient, rate))
        else:
            core.serve(values, stepping)
        if not core.works:
            end_server()

    def _units(self) -> list[list[Member]]:
        """Returns the members of each unit."""
        parameters, units = list(self._parameters_by_name.items()), []
        for indices in self._core.units:
            offset, members = 0, []
            for name, parameter in (parameters[index] for index in indices):
                members.append(Member(name, parameter, offset))
                offset += parameter.numel()
            units.append(members)
        return units

    # The worker.

    def _work(self, broadcast_buffers: bool) -> None:
        tensors = {**dict(self.module.named_parameters()), **dict(self.module.named_buffers())}
        if self._group.size() > 1:
            _core.broadcast_tensors(self._group, list(_detached(tensors).items()))
        self._members = self._units()
        self._values, self._gradients, self._places = [], [], []
        for members, elements in zip(self._members, self._core.elements):
            self._add_unit(members, elements)
        self._missing = [len(members) for members in self._members]
        self._pushed = [False] * len(self._members)
        self._synchronizes = True
        self._broadcasts = broadcast_buffers and self._core.has_common_steps
        self._core.begin(self._values)
        self._hook()
        self._leave_at_exit()

    @torch.no_grad()
    def _add_unit(self, members: list[Member], elements: int) -> None:
        """Makes the parameters views of one tensor, as large as divides among servers."""
        flat = torch.zeros(elements, dtype=members[0].parameter.dtype)
        gradient = torch.zeros_like(flat)
        places = []
        for _, parameter, offset in members:
            view = flat[offset:offset + parameter.numel()].view(parameter.shape)
            view.copy_(parameter)
            parameter.data = view
            places.append(gradient[offset:offset + parameter.numel()].view(parameter.shape))
        self._values.append(flat)
        self._gradients.append(gradient)
        self._places.append(places)

    def _hook(self) -> None:
        """The hooks do not own this object, which owns the module, and do nothing without it."""
        self._filled: set[tuple[int, int]] = set()
        this = weakref.ref(self)

        def active() -> Served | None:
            served = this()
            return None if served is None or served._has_left else served

        def hook_of(unit: int, place: int) -> Any:
            def on_gradient(_: torch.Tensor) -> None:
                if (served := active()) is not None and served._synchronizes:
                    served._fill(unit, place)
            return on_gradient

        def before_forward(module: torch.nn.Module, _: Any) -> None:
            if (served := active()) is not None:
                served._before_forward(module.training)

        def before_state(*_: Any) -> None:
            if (served := active()) is not None:
                served._core.finish()

        def before_load(*_: Any) -> None:
            if active() is not None:
                raise RuntimeError("Served: the servers have the parameters: load the state into "
                                   "the module before you wrap it")

        for unit, members in enumerate(self._members):
            for place, member in enumerate(members):
                member.parameter.register_post_accumulate_grad_hook(hook_of(unit, place))
        self.module.register_forward_pre_hook(before_forward)
        self.module.register_state_dict_pre_hook(before_state)
        self.module.register_load_state_dict_pre_hook(before_load)

    def _before_forward(self, training: bool) -> None:
        self._core.finish()
        if not (self._broadcasts and self._synchronizes and training and torch.is_grad_enabled()):
            return
        buffers = dict(self.module.named_buffers())
        if buffers and self._group.size() > 1:
            _core.broadcast_tensors(self._group, list(buffers.items()))

    def _fill(self, unit: int, place: int) -> None:
        """Moves a gradient to its unit, which leaves when it has all of them."""
        name, parameter, _ = self._members[unit][place]
        if (unit, place) in self._filled:
            raise RuntimeError(f"Served: backward gave '{name}' a second gradient: call step() "
                               "after each backward, and backward under no_sync() to accumulate")
        gradient = parameter.grad
        if gradient is None:
            self._places[unit][place].zero_()
        elif gradient.layout != torch.strided:
            raise RuntimeError(f"Served: the gradient of '{name}' is sparse; use a "
                               "gradwire.ServedEmbedding, or nn.Embedding with sparse=False")
        else:
            self._places[unit][place].copy_(gradient.detach())
        parameter.grad = None
        self._filled.add((unit, place))
        self._missing[unit] -= 1
        if self._missing[unit] == 0:
            self._core.push(unit, self._gradients[unit])

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Waits for the parameters, and calls the module."""
        return self.module(*args, **kwargs)

    def step(self) -> None:
        """Pulls what the servers' optimizers make of the gradients of the last backward; parameters
        without one have zeros. Does not wait: the next forward and state_dict() do."""
        if not self._filled and all(p.grad is None for p in self._parameters_by_name.values()):
            raise RuntimeError("Served: step() without a backward since the last one")
        self._check_places()
        for unit, members in enumerate(self._members):
            for place in range(len(members)):
                if (unit, place) not in self._filled:
                    self._fill(unit, place)
            self._missing[unit] = len(members)
            self._core.pull(unit, self._values[unit])
        self._filled.clear()
        self._taken = 0

    def _check_places(self) -> None:
        for members, flat in zip(self._members, self._values):
            for name, parameter, offset in members:
                if parameter.data_ptr() != flat.data_ptr() + offset * flat.element_size():
                    raise RuntimeError(f"Served: '{name}' was moved or converted, so that the "
                                       "servers' values cannot reach it: do that before you wrap "
                                       "the module")

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backwards within accumulate gradients on this worker; the first one outside pushes."""
        before, self._synchronizes = self._synchronizes, False
        try:
            yield
        finally:
            self._synchronizes = before

    def set_rate(self, rate: float) -> None:
        """Sets the factor on the optimizer's learning rates for the gradients of the following
        backwards; at first 1. In mode "sync" the same on all workers."""
        self._core.set_rate(rate)

    def take(self, count: int) -> Deal:
        """Returns the next batch of at most `count` samples, which server 0 deals: each sample once
        in an epoch. Waits while other workers have the last ones. With `count` 0 all are applied,
        and the parameters are those of synchronize(). Needs `samples`."""
        if self._samples == 0:
            raise ValueError("Served: take() needs samples=, the number of samples of an epoch")
        synchronized = False
        while True:
            epoch, begin, found, applied = self._core.take(count)
            if found > 0:
                self._taken += 1
                self._core.set_batches(self._taken)
            ended = synchronized and applied == self._samples
            if found > 0 or self._taken > 0 or ended:
                return Deal(epoch, begin, found)
            self.synchronize()
            synchronized = True

    def synchronize(self) -> None:
        """Gives all workers the same parameters: those of the servers after all gradients that were
        pushed before. Collective over the workers that are not lost; call it before evaluation and
        before the parameters are saved. Mode "sync" does not need it."""
        self._core.meet()
        self.pull()
        self._core.meet()

    def pull(self) -> None:
        """Replaces the parameters by those of the servers, each server's as they are at one moment.
        Waits for no other worker."""
        self._core.pull_all(self._values)

    def report(self) -> dict[str, Any]:
        """Returns what the servers have done so far: "staleness" of all applied gradients ("mean",
        "p50", "p99", "max", and their number, "gradients"), the same "by_unit" and "by_worker";
        "updates", the steps of units on servers; "late" and "repeated" gradients, which were
        dropped; "mean_factor" of the rate by staleness; "busy", the share of time in which servers
        computed. Waits for this worker's own gradients only."""
        return self._core.report()

    @property
    def units(self) -> list[list[str]]:
        """The names of each unit's parameters."""
        return [[member.name for member in members] for members in self._members]

    @property
    def bytes_sent(self) -> int:
        """Bytes of gradients, parameters and requests that this rank has sent so far."""
        return self._core.bytes_sent

    def __enter__(self) -> Self:
        return self


def _settings(**given: Any) -> _core.ServedSettings:
    settings = _core.ServedSettings()
    for name, value in given.items():
        setattr(settings, name, value)
    return settings


def _stepping(
    optimizer: Factory | str, options: dict[str, Any] | None
) -> Factory | _core.BuiltinOptimizer:
    if isinstance(optimizer, str):
        return builtin(optimizer, options or {})
    if isinstance(optimizer, torch.optim.Optimizer) or not callable(optimizer):
        raise TypeError(f"Served: optimizer is a {type(optimizer).__name__}: pass a function that "
                        "makes one on the servers, such as functools.partial(torch.optim.SGD, "
                        "lr=0.1), or \"sgd\", \"adam\" or \"adagrad\"")
    if options is not None:
        raise ValueError("Served: optimizer_options are for \"sgd\", \"adam\" and \"adagrad\"; "
                         "give a function its own")
    return optimizer


def _trainable(module: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    found = {name: p for name, p in module.named_parameters() if p.requires_grad}
    if not found:
        raise ValueError("Served: the module has no parameter that requires a gradient")
    return found


def _detached(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.detach() for name, tensor in tensors.items()}
