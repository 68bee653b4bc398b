"""Pipeline schedules as values: made by name or by a search, verified, simulated, drawn, exchanged
as PyTorch's CSV, and run by torch.distributed.pipelining:

    from gradwire.pipeline import Costs, Schedule

    costs = Costs(forward=0.02, backward_input=0.02, backward_weight=0.02,
                  message_bytes=1 << 20, network="1gbe")
    schedule = Schedule.search(ranks=4, micro_batches=16, costs=costs, kept=8)
    print(schedule.simulate(costs).step_seconds)
    print(schedule.draw(costs=costs))

    stages = [PipelineStage(module_of(stage), stage, schedule.stages, device)
              for stage in schedule.stages_of(dist.get_rank())]
    runtime = schedule.runtime(stages, loss_fn)
    runtime.step(batch)                            # on the rank of stage 0

A schedule is immutable, and the same on every rank: a search depends on its arguments only. Bad
arguments are ValueErrors that name the remedy. docs/pipeline.md has the schedules and what the
verifier proves.
"""

import dataclasses
import math
import operator
import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from gradwire import _core

if TYPE_CHECKING:
    from torch.distributed.pipelining import PipelineStage
    from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

__all__ = ["Costs", "Schedule", "ScheduleFault", "Simulation", "Task", "TimedTask", "names"]

_MAX = 1 << 16  # Micro-batches of a step, as in C++.


class Task(NamedTuple):
    """A computation of one micro-batch in one stage. str() gives PyTorch's notation: "2F0"."""

    compute: str
    """"F": forward, "B": backward, "I" and "W": its gradients of inputs, and of weights."""
    stage: int
    micro_batch: int
    delay: int = 0
    """In step k, the task belongs to step k - delay: only in asynchronous schedules."""

    def __str__(self) -> str:
        late = f"-{self.delay}" if self.delay else ""
        return f"{self.stage}{self.compute}{self.micro_batch}{late}"


class TimedTask(NamedTuple):
    """A task of a simulation, and its time in seconds since the first step began."""

    rank: int
    step: int
    task: Task
    begin: float
    end: float


class ScheduleFault(ValueError):
    """A fault of a schedule; the message names rank, task and cause."""

    def __init__(self, fault: str, message: str) -> None:
        super().__init__(fault, message)
        self.fault = fault
        """malformed, incomplete, too_early, wrong_order, deadlock, too_much or wrong_weights."""

    def __str__(self) -> str:
        return f"{self.args[0]}: {self.args[1]}"


@dataclasses.dataclass(frozen=True)
class Costs:
    """Times of one micro-batch, and the links that carry its activations and their gradients.

    forward, backward_input, backward_weight: seconds of a forward, and of the gradients of inputs
        and of weights; a whole backward takes the sum of both. A number is the time of all layers
        of a rank, which its stages share equally. A sequence has the time of each stage.
    message_bytes: bytes of an activation between two stages, and of its gradient.
    bandwidth: rate of a host's port in each direction, in bytes per second, or as text: "1Gb/s".
    latency: seconds, one way.
    network: "1gbe", "10gbe", ..., or a file of `gradwire probe`, in place of bandwidth and latency.

    Raises ValueError for other values, and for message_bytes without a bandwidth or network.
    """

    forward: float | Sequence[float] = 1.0
    backward_input: float | Sequence[float] = 1.0
    backward_weight: float | Sequence[float] = 1.0
    message_bytes: int = 0
    bandwidth: float | str | None = None
    latency: float = 0.0
    network: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        for name in ("forward", "backward_input", "backward_weight"):
            value = getattr(self, name)
            if isinstance(value, Iterable) and not isinstance(value, str):
                value = tuple(value)
                object.__setattr__(self, name, value)  # Hashable.
            for seconds in value if isinstance(value, tuple) else (value,):
                _check_amount(name, seconds, "seconds")
        _check_amount("message_bytes", self.message_bytes, "bytes")
        _check_amount("latency", self.latency, "seconds")
        if self.network is not None and (self.bandwidth is not None or self.latency):
            raise ValueError("network includes bandwidth and latency: give either")
        if self.message_bytes and self.network is None and self.bandwidth is None:
            raise ValueError(f"{self.message_bytes} bytes of messages need a bandwidth, such as "
                             "'1Gb/s', or a network, such as '1gbe'")
        self._link()

    def _link(self) -> tuple[float, float]:
        """Returns bytes per second and latency."""
        if self.network is not None:
            return _core.network_link(os.fspath(self.network))
        if self.bandwidth is None:
            return math.inf, self.latency
        rate = self.bandwidth
        rate = _core.parse_rate(rate) if isinstance(rate, str) else rate
        if not rate > 0:
            raise ValueError(f"bandwidth={self.bandwidth!r}: expected bytes per second above 0")
        return rate, self.latency

    def _of(self, ranks: int, stages: int) -> _core.PipelineCosts:
        columns = [self._by_stage(name, ranks, stages)
                   for name in ("forward", "backward_input", "backward_weight")]
        rate, latency = self._link()
        return _core.PipelineCosts(list(zip(*columns)), self.message_bytes / rate, latency)

    def _by_stage(self, name: str, ranks: int, stages: int) -> Sequence[float]:
        value = getattr(self, name)
        if not isinstance(value, tuple):
            return [value * ranks / stages] * stages
        if len(value) != stages:
            raise ValueError(f"{name} has the times of {len(value)} stages, but the schedule has "
                             f"{stages}: give one time for each, or a number")
        return value


@dataclasses.dataclass(frozen=True)
class Simulation:
    """The prediction of `Schedule.simulate`."""

    step_seconds: float
    """Time of a step; of several simulated steps, the mean of the second half."""
    bubble: float
    """Share of the ranks' time in which they compute nothing, 0 to 1."""
    kept: tuple[int, ...]
    """By rank: `Schedule.kept`."""
    busy: tuple[float, ...]
    """By rank: seconds of a step in which it computes."""
    tasks: tuple[TimedTask, ...] = dataclasses.field(repr=False)
    """In the order of their begin."""


class Schedule:
    """One training step of a pipeline: the order in which each rank computes its tasks.

    Immutable. Two schedules are equal if the ranks compute the same tasks in the same order, with
    the same weights and the same barrier: names and limits do not count. Pickle copies a schedule
    to another process.
    """

    __slots__ = ("_core",)

    def __init__(self, core: _core.PipelineSchedule) -> None:
        """For this module: use named(), search() or from_csv()."""
        self._core = core

    @classmethod
    def named(
        cls,
        name: str,
        *,
        ranks: int,
        micro_batches: int,
        chunks: int = 2,
        kept: int | None = None,
        costs: Costs | None = None,
        barrier: bool = False,
    ) -> "Schedule":
        """Makes the schedule of a name, one of `names()`.

        name: may end in a number: of stages per rank in "interleaved:4", else of micro-batches to
            keep, as in "zero_bubble:12".
        ranks: processes of the pipeline.
        micro_batches: parts of a batch.
        chunks: stages per rank of "interleaved".
        kept: micro-batches whose activations a rank may keep. None: in 1f1b and 2bw as many as hide
            the transfers, in zero_bubble and auto twice the ranks, in zero_bubble_v and pipedream
            as many as ranks.
        costs: for schedules that depend on them. None: Costs().
        barrier: a step begins when all ranks have ended the last one.

        Raises ValueError for an unknown name, with the nearest one, and sizes that do not fit it.
        """
        _check_sizes(ranks, micro_batches)
        _check_count("chunks", chunks)
        limit = 0 if kept is None else _check_count("kept", kept)
        stages = ranks * _core.pipeline_chunks(name, chunks)
        given = (costs or Costs())._of(ranks, stages)
        return cls(_core.pipeline_named(name, ranks, micro_batches, chunks, limit, barrier, given))

    @classmethod
    def search(
        cls,
        *,
        ranks: int,
        micro_batches: int,
        costs: Costs | None = None,
        kept: int | Sequence[int] | None = None,
        barrier: bool = False,
        steps: int = 1,
    ) -> "Schedule":
        """Searches for the fastest schedule with one stage per rank, as `simulate(costs, steps)`
        measures it. It is never slower than gpipe, 1f1b, zero_bubble_h1 and zero_bubble within the
        limits.

        ranks, micro_batches, barrier: as in named().
        costs: times and network. None: Costs().
        kept: micro-batches whose activations a rank may keep, or a sequence with one number for
            each rank. None: twice the ranks.
        steps: steps that follow each other; 1: the time of a step alone counts.

        The same arguments give the same schedule, on every rank. Takes up to some seconds. Raises
        ValueError for sizes below 1, and costs or limits of another number of ranks.
        """
        _check_sizes(ranks, micro_batches)
        _check_count("steps", steps, 1000)
        limits = list(kept) if isinstance(kept, Sequence) else [kept or 2 * ranks] * ranks
        if kept == 0 or len(limits) != ranks:
            raise ValueError(f"kept={kept!r}: expected a number above 0, or one for each of the "
                             f"{ranks} ranks")
        for limit in limits:
            _check_count("kept", limit, 1 << 30)
        given = (costs or Costs())._of(ranks, ranks)
        return cls(_core.pipeline_search(ranks, micro_batches, limits, barrier, steps, given))

    @classmethod
    def from_csv(cls, text: str, *, name: str = "csv", barrier: bool = False) -> "Schedule":
        """Reads PyTorch's compute-only CSV, as `_dump_csv(file, format="compute_only")` writes it:
        a line for each rank, "0F0,0F1,0B0,0B1". Empty cells are skipped.

        The schedule may be wrong, until verify() has returned. Raises ValueError that names line
        and cell, or a stage that no rank has.
        """
        return cls(_core.pipeline_from_csv(text, name, barrier))

    def to_csv(self) -> str:
        """Returns the order as PyTorch's compute-only CSV, for `_load_csv(file)` of
        torch.distributed.pipelining; `runtime` does that. Raises ValueError for an asynchronous
        schedule, which PyTorch's format lacks."""
        return self._core.torch_csv()

    @property
    def name(self) -> str:
        """The generator that made it: "1f1b"; a schedule that search() found names its origin."""
        return self._core.name

    @property
    def ranks(self) -> int:
        """Number of processes of the pipeline."""
        return len(self._core.order)

    @property
    def stages(self) -> int:
        """Number of stages of the model, over all ranks."""
        return len(self._core.rank_of_stage)

    @property
    def micro_batches(self) -> int:
        """Number of micro-batches of a step."""
        return self._core.micro_batches

    @property
    def rank_of_stage(self) -> tuple[int, ...]:
        """By stage: the rank that computes it."""
        return tuple(self._core.rank_of_stage)

    def stages_of(self, rank: int) -> tuple[int, ...]:
        """Returns the stages that a rank computes. Raises ValueError for a rank that is not 0 to
        ranks - 1."""
        if not 0 <= rank < self.ranks:
            raise ValueError(f"rank {rank}: expected 0 to {self.ranks - 1}, the ranks of {self!r}")
        return tuple(stage for stage, home in enumerate(self.rank_of_stage) if home == rank)

    @property
    def order(self) -> tuple[tuple[Task, ...], ...]:
        """By rank: its tasks, one after the other."""
        return tuple(tuple(Task(*task) for task in tasks) for tasks in self._core.order)

    @property
    def kept(self) -> tuple[int, ...]:
        """By rank: the maximum number of micro-batches whose activations it keeps, over its stages:
        from their forward to their backward, or to their gradients of weights."""
        return tuple(self._core.kept)

    @property
    def barrier(self) -> bool:
        """True if a step begins when all ranks have ended the last one."""
        return self._core.barrier

    @property
    def asynchronous(self) -> bool:
        """True if the pipeline never drains, and updates weights with gradients of older ones."""
        return self._core.max_delay > 0 or self._core.weights != "flush"

    def verify(self) -> None:
        """Proves the schedule correct for any times of computations and transfers, and any number
        of steps: each computation occurs once, after all that it needs; ranks never wait for each
        other; a stage adds its gradients of weights in the order of the micro-batches, as one
        process does; ranks keep no more micro-batches than declared. Raises ScheduleFault, a
        ValueError, with the first fault.
        """
        found = self._core.fault()
        if found is not None:
            raise ScheduleFault(*found)

    def simulate(self, costs: Costs | None = None, *, steps: int | None = None) -> Simulation:
        """Runs the schedule in virtual time.

        costs: None: Costs(), in which each computation takes a second and transfers no time.
        steps: steps that follow each other. None: 1, and 16 of an asynchronous schedule.

        Raises ScheduleFault for a schedule with a fault, ValueError for costs of another number of
        stages.
        """
        steps = self._steps(steps)
        self.verify()
        seconds, bubble, fields = self._core.simulate(self._costs(costs), steps)
        tasks = tuple(TimedTask(rank, step, Task(*task), begin, end)
                      for rank, step, task, begin, end in fields)
        busy = [0.0] * self.ranks
        for each in tasks:
            busy[each.rank] += (each.end - each.begin) / steps
        return Simulation(seconds, bubble, self.kept, tuple(busy), tasks)

    def draw(
        self,
        format: str = "text",
        *,
        costs: Costs | None = None,
        steps: int | None = None,
        columns: int = 160,
    ) -> str:
        """Draws the simulated computations over time.

        format: "text": a line per rank, at most `columns` wide; "svg": an image for a file or a
            notebook, `IPython.display.SVG(schedule.draw("svg"))`.
        costs: as in simulate().
        steps: None: 2 as text, 1 as SVG, 16 of an asynchronous schedule as SVG.

        Raises ScheduleFault, ValueError.
        """
        if format not in ("text", "svg"):
            raise ValueError(f"format={format!r}: expected 'text' or 'svg'")
        _check_count("columns", columns)
        steps = self._steps(2 if steps is None and format == "text" else steps)
        self.verify()
        return self._core.draw(self._costs(costs), steps, format == "svg", columns)

    def runtime(
        self,
        stages: "PipelineStage | Sequence[PipelineStage]",
        loss_fn: Callable[..., Any] | None = None,
        **options: Any,
    ) -> "_PipelineScheduleRuntime":
        """Returns an object of torch.distributed.pipelining that runs this schedule: its step() is
        that of PyTorch's schedules. The process group may have any backend.

        stages: the PipelineStages of this rank: of the stages stages_of(rank), where rank is that
            in their group.
        loss_fn: function of a micro-batch's output and target, for the last stage.
        options: PyTorch's, such as scale_grads=False for a loss that is a sum over the batch.

        Raises ScheduleFault for a schedule with a fault. Raises ValueError for an asynchronous
        schedule and for one of forwards only, which PyTorch does not run (its eval() runs the
        forwards of any schedule), and for stages of another rank or pipeline.
        """
        # In PyTorch a private class: gradwire is built for one release of it.
        from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

        given = list(stages) if isinstance(stages, Sequence) else [stages]
        text = self.to_csv()
        self.verify()
        self._check_runnable(given)
        result = _PipelineScheduleRuntime(given, self.micro_batches, loss_fn=loss_fn, **options)
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "schedule.csv")
            with open(file, "w", encoding="ascii") as stream:
                stream.write(text)
            result._load_csv(file)
        return result

    def _check_runnable(self, stages: "list[PipelineStage]") -> None:
        if self.asynchronous or not self._core.trains:
            raise ValueError(f"PyTorch cannot run {self!r}: choose a schedule that trains and "
                             "drains, such as zero_bubble")
        if not stages:
            raise ValueError("stages is empty: give the PipelineStages of this rank, those of "
                             "stages_of(rank)")
        ranks, count = stages[0].group_size, stages[0].num_stages
        if (ranks, count) != (self.ranks, self.stages):
            raise ValueError(f"{self!r} does not fit {count} stages on {ranks} ranks: make the "
                             "schedule and the PipelineStages for the same numbers")
        rank = stages[0].group_rank
        found = sorted(stage.stage_index for stage in stages)
        if found != list(self.stages_of(rank)):
            raise ValueError(f"rank {rank} has stages {found}, in {self!r} it has "
                             f"{list(self.stages_of(rank))}: make those of stages_of({rank})")

    def _steps(self, steps: int | None) -> int:
        usual = 16 if self.asynchronous else 1
        return usual if steps is None else _check_count("steps", steps, 1000)

    def _costs(self, costs: Costs | None) -> _core.PipelineCosts:
        return (costs or Costs())._of(self.ranks, self.stages)

    def _key(self) -> tuple[Any, ...]:
        return (self._core.order, self._core.rank_of_stage, self._core.micro_batches,
                self._core.trains, self._core.weights, self._core.barrier)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Schedule):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash((self.order, self.rank_of_stage, self.barrier))

    def __repr__(self) -> str:
        return (f"Schedule({self.name!r}, ranks={self.ranks}, stages={self.stages}, "
                f"micro_batches={self.micro_batches})")

    def __reduce__(self) -> tuple[Any, ...]:
        return Schedule, (self._core,)


def names() -> dict[str, str]:
    """Returns the names of named(), and what each schedule is."""
    return dict(_core.pipeline_names())


def _check_sizes(ranks: int, micro_batches: int) -> None:
    _check_count("ranks", ranks, 4096)
    _check_count("micro_batches", micro_batches)


def _check_count(name: str, value: int, most: int = _MAX) -> int:
    try:
        count = operator.index(value)
    except TypeError:
        count = 0
    if not 1 <= count <= most:
        raise ValueError(f"{name}={value!r}: expected a whole number, 1 to {most}")
    return count


def _check_amount(name: str, value: float, unit: str) -> None:
    try:
        fine = 0 <= value < math.inf
    except TypeError:
        fine = False
    if not fine:
        raise ValueError(f"{name}={value!r}: expected {unit}, 0 or more")
