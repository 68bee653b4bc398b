"""The C++ extension module. `gradwire` is the public interface."""

from datetime import timedelta
from typing import Any, Callable

from torch import Tensor
from torch.distributed import ProcessGroup, Store

class Options:
    """Options of a group: see gradwire.Options. None: the environment's value."""

    interface: str | None
    secret: str | None
    port: int | None
    shared_memory: bool | None
    encryption: bool | None
    codec: str
    algorithm: str
    engine: str
    inside: str
    topology: str
    dead_peer_timeout: timedelta
    def __init__(self) -> None: ...

class HostGrid:
    """The ranks of hosts that have the same number of ranks each."""

    @property
    def inside(self) -> list[int]:
        """The ranks of this host."""

    @property
    def hosts(self) -> list[list[int]]:
        """The ranks of each host."""

def machine_identity() -> str:
    """Returns a text that processes of one host have in common."""

class ProcessGroupGradwire:
    """A torch.distributed Backend."""

class GradwireBackend(ProcessGroupGradwire):
    """The backend object of a group, returned by gradwire.backend_of()."""

    @property
    def options(self) -> Options:
        """The options of the group."""

    @property
    def bytes_sent(self) -> int:
        """Bytes that this rank has sent so far, payload and headers."""

    def algorithm_for(self, collective: str, bytes: int) -> str:
        """Returns the algorithm of an operation ("all_reduce", ...) of this size: the one that the
        options name, otherwise the tuner's choice. The same on all ranks. Raises ValueError for an
        unknown collective."""

    def add_codec_hook(self, reducer: Any, codec: str, warmup_steps: int, seed: int) -> CodecHook:
        """Implements gradwire.hooks.register, which describes the arguments. `reducer` is that of a
        DistributedDataParallel. Raises ValueError for an unknown codec, RuntimeError if the model
        has a hook."""

    def host_grid(self, machine: str) -> HostGrid:
        """Returns which ranks have the same `machine`. Collective. Raises RuntimeError if hosts have
        different numbers of ranks."""

    def use_inside(self, grid: HostGrid, reductions: Any = ..., gathers: Any = ...) -> None:
        """Uses these backends between the ranks of a host, None: gradwire's own. Collective; once,
        before any operation."""

    def perform_nocolor_split(self, device: Any) -> None:
        """Does nothing; torch.distributed calls it on a rank that is in no part of a split."""

    def shutdown(self) -> None:
        """Tells the peers that this rank leaves; operations in flight fail. Returns after all
        callbacks."""

    def abort(self) -> None:
        """Fails all operations in flight, here and on the peers."""

class CodecHook:
    """Implementation of gradwire.hooks.Hook."""

    def describe(self) -> str:
        """Returns one line that says how gradients are sent, and why."""

    def state(self) -> list[tuple[str, Tensor]]:
        """Returns a copy of this rank's error-feedback residuals by name, each one-dimensional.
        Call it between steps."""

    def load_state(self, saved: list[tuple[str, Tensor]]) -> None:
        """Restores an earlier state(), which is kept until the codec starts. Call it between steps.
        Raises ValueError that names a tensor of another size, if the codec has started."""

def device_groups(between: ProcessGroup | None, devices: int) -> list[ProcessGroup]:
    """Returns groups for threads of this process, ranks p * devices + 0, 1, ... of as many on each
    process p of `between`, which nothing else may use afterwards; None: this process is alone.
    Collective over the processes."""

def abort_group(group: ProcessGroup, reason: str) -> None:
    """Fails all operations of a group, on this rank and the others, with this reason."""

class HostOptions:
    """Options of a TrainingHost. They mean what DataParallelOptions of the C++ library do."""

    bucket_cap_mb: float
    overlap: str
    forward_awaits: bool
    broadcast_buffers: bool
    find_unused: bool
    check_finite: bool
    can_abandon: bool
    codec: str
    codec_min_elements: int
    codec_warmup_steps: int
    codec_seed: int
    def __init__(self) -> None: ...

class TrainingHost:
    """Data-parallel training steps of tensors: what training classes in Python stand on. It knows
    no modules: its owner reports forwards and blocks by number, and autograd reports gradients. The
    methods are those of gradwire/host/training_host.h. Not thread-safe."""

    def __init__(self, group: ProcessGroup, parameters: list[tuple[str, Tensor]],
                 options: HostOptions, *, step: Callable[[int, float], object] | None = None,
                 buffers: list[tuple[str, Tensor]] = ...) -> None:
        """`parameters`, which must be trainable leaves, have the same names, shapes and values on
        all ranks, `buffers` the same names and shapes. `step(unit, factor)` steps the parameters of
        a unit with `factor` times their grad, and clears it. If it raises, the group fails on all
        ranks, and the caller of the method that ran it gets the exception. It must not own the
        host, which owns it: use weakref. None: gradients are averaged only. Collective. Raises
        ValueError for invalid arguments."""

    @property
    def units(self) -> list[list[int]]:
        """The indices of each unit's parameters."""

    def add_block(self, units: list[int]) -> int:
        """Adds a block that needs these units; returns its number."""

    def before_forward(self, training: bool) -> None:
        """A forward begins; `training`: the model is in training mode. Broadcasts the buffers, and
        waits for the pending step unless blocks do."""

    def before_block(self, block: int) -> None:
        """The block is about to run: waits until its parameters are stepped."""

    def after_block(self, block: int, outputs: list[Tensor]) -> None:
        """The block has returned these tensors."""

    def after_forward(self, outputs: list[Tensor]) -> None:
        """The forward has returned these tensors, from which a backward may start."""

    def set_synchronizes(self, yes: bool) -> None:
        """False: following backwards accumulate gradients on this rank."""

    def begin_step(self, factor: float = 1.0) -> None:
        """Steps all units with `factor` times their gradients, as their means arrive."""

    def abandon_step(self) -> None:
        """Drops the gradients since the last step. Requires HostOptions.can_abandon. On all
        ranks."""

    def finish(self) -> None:
        """Completes the pending step, and waits for all means. Call it before you drop the host."""

    def synchronize_buffers(self) -> None:
        """Broadcasts rank 0's buffers. Collective."""

class ServedSettings:
    """Settings of a ServedRank. gradwire.Served describes them."""

    servers: int
    mode: str
    use: float
    rate: str
    pull_every: int
    bucket_cap_mb: float
    codec: str
    pull_codec: str
    codec_min_elements: int
    codec_warmup_steps: int
    codec_seed: int
    def __init__(self) -> None: ...

class BuiltinOptimizer:
    """torch.optim's SGD, Adam or Adagrad, which steps without Python. All options are 0 at first."""

    lr: float
    momentum: float
    dampening: float
    nesterov: bool
    weight_decay: float
    beta1: float
    beta2: float
    eps: float
    lr_decay: float
    initial_accumulator_value: float
    def __init__(self, name: str) -> None: ...

class ServedRank:
    """Implementation of gradwire.Served: this rank as a worker, a server, or both. Works on flat
    tensors, one for each unit. Not thread-safe."""

    def __init__(self, group: ProcessGroup, parameters: list[tuple[str, Tensor]],
                 settings: ServedSettings) -> None:
        """Connects all workers and servers. Collective. Raises ValueError, RuntimeError."""

    @property
    def server(self) -> int:
        """The number of the server on this rank; -1 if there is none."""

    @property
    def works(self) -> bool:
        """True unless this rank only serves."""

    @property
    def servers(self) -> int:
        """Number of servers."""

    @property
    def workers(self) -> int:
        """Number of workers."""

    @property
    def has_common_steps(self) -> bool:
        """True in mode sync with all gradients."""

    @property
    def units(self) -> list[list[int]]:
        """The indices of each unit's parameters."""

    @property
    def elements(self) -> list[int]:
        """The elements of each unit, which the number of servers divides."""

    @property
    def bytes_sent(self) -> int:
        """Bytes of payload that this rank has sent to workers and servers."""

    def serve(self, values: list[Tensor],
              step: BuiltinOptimizer | Callable[[int, Tensor, float], object]) -> None:
        """Serves with its parts of the units, on a thread of its own if this rank works too;
        otherwise until all workers have left. `step` is called with a unit, its gradient, and the
        factor on the learning rate."""

    def begin(self, values: list[Tensor]) -> None:
        """Begins to work. The servers get the values of worker 0. Collective."""

    def push(self, unit: int, gradient: Tensor) -> None:
        """Begins to send a gradient, which must not change until finish()."""

    def pull(self, unit: int, values: Tensor) -> None:
        """Begins to receive what the servers make of the unit's last gradient."""

    def finish(self) -> None:
        """Waits for all pushes and pulls."""

    def pull_all(self, values: list[Tensor]) -> None:
        """Replaces the values of all units by those of the servers, each as at one moment."""

    def meet(self) -> None:
        """Waits for all workers that are not lost, and for their gradients."""

    def deal(self, samples: int, epochs: int) -> None:
        """Makes server 0 deal samples. Collective."""

    def take(self, count: int) -> tuple[int, int, int, int]:
        """Returns epoch, begin and count of a batch, and the samples applied so far."""

    def set_batches(self, batches: int) -> None:
        """Sets the number of batches of which the following gradients are."""

    def set_rate(self, rate: float) -> None:
        """Sets the factor on the learning rate of the following gradients."""

    def report(self) -> dict[str, Any]:
        """Implements gradwire.Served.report."""

    def leave(self) -> None:
        """Tells the servers that this worker ends, and waits for the server beside it."""

    def abort(self, why: str) -> None:
        """Tells them that this worker has failed."""

def broadcast_tensors(group: ProcessGroup, tensors: list[tuple[str, Tensor]]) -> None:
    """Broadcasts the tensors of rank 0. Collective."""

class EmbeddingOptions:
    """Options of an EmbeddingTable. gradwire.ServedEmbedding describes them."""

    rows: int
    width: int
    staleness: int
    seed: int
    optimizer: str
    learning_rate: float
    servers: int
    def __init__(self) -> None: ...

class EmbeddingTable:
    """Implementation of gradwire.ServedEmbedding, whose methods these are."""

    def prefetch(self, ids: Tensor) -> None:
        """Begins to look up the rows of a later batch."""

    def look_up(self, ids: Tensor) -> Tensor:
        """Implements the call."""

    def step(self) -> None:
        """Pushes the gradients of the batch."""

    def set_rate(self, rate: float) -> None:
        """Sets the factor on the learning rate."""

    def read(self, ids: Tensor) -> Tensor:
        """Returns rows without a permit."""

    def synchronize(self) -> None:
        """Waits for this worker's gradients."""

    def gather(self) -> Tensor:
        """Returns the whole table."""

    def made(self) -> list[Tensor]:
        """Returns ids, values and states of the rows that were made."""

    def load(self, ids: Tensor, values: Tensor, states: Tensor) -> None:
        """Puts them back. Collective."""

    def report(self) -> dict[str, Any]:
        """Returns what the servers have done."""

    @property
    def bytes_sent(self) -> int:
        """Bytes of payload that this rank has sent to workers and servers."""

    @property
    def free_permits(self) -> int:
        """Number of batches that can be looked up before step()."""

    def leave(self) -> None:
        """Tells the servers that this worker ends, and waits for the server beside it."""

    def abort(self, why: str) -> None:
        """Tells them that this worker has failed."""

def open_embedding(group: ProcessGroup, options: EmbeddingOptions) -> EmbeddingTable | None:
    """Returns a worker's table; None on a rank that has served until all workers left. Collective.
    Raises ValueError, RuntimeError."""

class FederatedSettings:
    """Settings of FederatedRounds. gradwire.federated.simulate describes them."""

    ask: int
    use: int
    least: int
    window_s: float
    select: str
    partial: str
    epochs: int
    bits: int
    rotate: bool
    mask: float
    clip: float
    secure: bool
    dropping: float
    colluding: float
    compute_s: list[float]
    up: list[float]
    down: list[float]
    eligible: float
    drop: float
    stragglers: float
    seed: int
    def __init__(self) -> None: ...

class FederatedRounds:
    """Rounds of simulated clients, which a function trains."""

    def __init__(
        self, settings: FederatedSettings, samples: list[int], elements: int
    ) -> None: ...
    def next(
        self, train: Callable[[int, int, float], tuple[Any, ...]]
    ) -> tuple[dict[str, Any], Tensor | None]:
        """Returns what the next round was, and the mean update unless it was abandoned. `train`
        gets a client, the round and the epochs, and returns the update, steps, mean loss, and
        number, correct ones and loss of evaluated samples."""

    def training_seed(self) -> int:
        """Returns the seed of the local training."""

    def jain(self) -> float:
        """Returns Jain's index of counted()."""

    def counted(self) -> list[int]:
        """Returns in how many rounds each client's update counted."""

class FederatedCost:
    """Seconds and bytes of a client."""

    compute_s: float
    up_bytes: float
    down_bytes: float
    def __init__(self) -> None: ...

class FederatedLimits:
    """Bounds on these, and on memory."""

    round: FederatedCost
    day: FederatedCost
    memory_bytes: int
    def __init__(self) -> None: ...

class FederatedClientSettings:
    """Settings of a FederatedParticipant. gradwire.FederatedClient describes them."""

    identity: str
    server: str
    plugged: bool
    command: str
    test: Callable[[], bool] | None
    limits: FederatedLimits
    secure: bool
    active: bool
    least_threshold: int | None
    give_up_s: float
    def __init__(self) -> None: ...

class FederatedWork:
    """What a client is to train in a round."""

    @property
    def client(self) -> int:
        """Number of this client, from 0."""

    @property
    def round(self) -> int:
        """Number of the round, from 1."""

    @property
    def epochs(self) -> int:
        """Local epochs."""

    @property
    def batch_size(self) -> int:
        """Samples of a batch; 0: all."""

    @property
    def optimizer(self) -> str:
        """JSON of the local optimizer: name, learning_rate, ..."""

    @property
    def proximal(self) -> float:
        """mu of FedProx; 0: none."""

    @property
    def seed(self) -> int:
        """Decides the order of samples."""

    @property
    def model(self) -> Tensor:
        """The global model, flat, in the order of set_tensors()."""

class FederatedParticipant:
    """A client of a server, without its training. Calls release the GIL while they wait."""

    def __init__(self, settings: FederatedClientSettings) -> None: ...
    def configuration(self) -> str:
        """Returns JSON by the server."""

    def set_tensors(self, shapes: list[tuple[str, list[int]]]) -> None:
        """Raises ValueError unless the server's model has tensors of these names and shapes."""

    def begin(self, samples: int) -> FederatedWork | None:
        """Waits for a round; None: there are no more, or stop()."""

    def goes_on(self) -> bool:
        """Returns whether there may be a further step."""

    def end(
        self,
        update: Tensor,
        steps: int,
        training_loss: float,
        evaluated: int,
        correct: int,
        loss: float,
        all_steps: int,
    ) -> tuple[bool, str]:
        """Uploads the update. Returns whether it counted, and why it did not."""

    def leave(self) -> None:
        """Leaves the round, in place of end()."""

    def stop(self) -> None:
        """Ends these calls; from any thread."""

class StepTrace:
    """Implementation of gradwire.tracing.Trace."""

    def now(self) -> int:
        """Returns nanoseconds of the clock of the spans."""

    def begin_step(self, number: int) -> None:
        """Assigns the following spans to this step."""

    def record(self, name: str, begin: int, bytes: int) -> None:
        """Records a span from `begin` (of now()) until now. bytes: bytes moved, or 0."""

    def follow(self, hook: CodecHook) -> None:
        """Records the hook's buckets as spans. Call it before the first backward."""

    def finish(self) -> str | None:
        """Writes the file; returns the summary on rank 0. Collective; nothing is recorded
        afterwards. Raises RuntimeError."""

class GradwireStore(Store):
    """The job's own store, for clients that know its secret."""

    @property
    def host(self) -> str:
        """Name or address of rank 0's host."""

    @property
    def port(self) -> int:
        """Port on which rank 0 serves the store."""

def open_store(variables: dict[str, str], timeout: timedelta) -> tuple[Store, int, int]:
    """Returns the store, this process's rank and the world size, from the environment; `variables`
    take precedence. Rank 0 serves the store. Blocks until rank 0 is reachable. Raises ValueError,
    RuntimeError."""

def close_stores(failed: bool) -> None:
    """Leaves every live store of this process. Unless `failed`, rank 0 waits at most two seconds
    for the other ranks."""

def create(group: Any, options: Options | None, first: bool) -> GradwireBackend:
    """Creates the backend of a group (from torch.distributed's DistributedBackendOptions). Blocks
    until its ranks are connected. `first`: logs the warnings that a process logs once. Raises
    ValueError, RuntimeError."""

def close_all(failure: str) -> None:
    """Shuts down every live group of this process. With a `failure` ("after an exception: ..."),
    which the other ranks are told, operations in flight fail at once; otherwise those that other
    ranks may need complete first."""

def trace(group: ProcessGroup, file: str) -> StepTrace:
    """Starts a trace, whose `file` rank 0 writes. Collective. Raises RuntimeError."""

class VerifiedCheckpoint:
    """A checkpoint whose files have been verified against their sizes and checksums. Raises
    ValueError that names a damaged file."""

    def __init__(self, path: bytes) -> None: ...
    def names(self, optimizer: bool) -> list[str]:
        """Names of the model's tensors, or of its optimizer's states, in the order in which they
        were saved."""

    def read(self, name: str) -> Tensor:
        """Returns a whole tensor. Raises ValueError."""

def find_checkpoint(path: bytes) -> str:
    """Returns the folder of the checkpoint at `path`. Raises FileNotFoundError if there is none,
    ValueError if one that may be the newest is damaged."""

def manifest_text(path: bytes) -> str:
    """Returns a checkpoint's verified manifest as text. Raises ValueError that names it."""

class PipelineCosts:
    """Implementation of gradwire.pipeline.Costs, for one number of stages."""

    def __init__(
        self, stages: list[tuple[float, ...]], transfer: float, latency: float
    ) -> None: ...

class PipelineSchedule:
    """Implementation of gradwire.pipeline.Schedule. Tasks are (letter, stage, micro-batch, delay)."""

    @property
    def name(self) -> str:
        """What made it."""

    @property
    def micro_batches(self) -> int:
        """Number of micro-batches of a step."""

    @property
    def rank_of_stage(self) -> list[int]:
        """By stage: its rank."""

    @property
    def trains(self) -> bool:
        """False: forwards only."""

    @property
    def barrier(self) -> bool:
        """True if a step begins when all ranks have ended the last one."""

    @property
    def order(self) -> list[list[tuple[str, int, int, int]]]:
        """By rank: its tasks."""

    @property
    def kept(self) -> list[int]:
        """By rank: the maximum number of micro-batches that it keeps."""

    @property
    def max_delay(self) -> int:
        """Steps that a task is delayed at most."""

    @property
    def weights(self) -> str:
        """Name of the rule for weights: "flush", ..."""

    def torch_csv(self) -> str:
        """Returns PyTorch's CSV. Raises ValueError for an asynchronous schedule."""

    def fault(self) -> tuple[str, str] | None:
        """Returns the first fault and its description; None: correct."""

    def simulate(
        self, costs: PipelineCosts, steps: int
    ) -> tuple[float, float, list[tuple[int, int, tuple[str, int, int, int], float, float]]]:
        """Returns the seconds of a step, the share of idle time, and (rank, step, task, begin, end)
        of each task. Requires a schedule without faults, and costs of its stages."""

    def draw(self, costs: PipelineCosts, steps: int, svg: bool, columns: int) -> str:
        """Draws a simulated run, with the requirements of simulate()."""

def pipeline_named(
    name: str,
    ranks: int,
    micro_batches: int,
    chunks: int,
    kept: int,
    barrier: bool,
    costs: PipelineCosts,
) -> PipelineSchedule:
    """Implements gradwire.pipeline.Schedule.named; kept: 0 is the default. Raises ValueError."""

def pipeline_search(
    ranks: int,
    micro_batches: int,
    kept: list[int],
    barrier: bool,
    steps: int,
    costs: PipelineCosts,
) -> PipelineSchedule:
    """Implements gradwire.pipeline.Schedule.search. Raises ValueError."""

def pipeline_from_csv(text: str, name: str, barrier: bool) -> PipelineSchedule:
    """Implements gradwire.pipeline.Schedule.from_csv. Raises ValueError."""

def pipeline_chunks(name: str, chunks: int) -> int:
    """Returns the stages per rank of a named schedule, given those of "interleaved"."""

def pipeline_names() -> list[tuple[str, str]]:
    """Returns the names of schedules, and what they are."""

def network_link(network: str) -> tuple[float, float]:
    """Returns bytes per second and seconds of latency of a network's slowest host: a name, a rate,
    or a file of `gradwire probe`. Raises ValueError."""

def parse_rate(text: str) -> float:
    """Returns the bytes per second of "1Gb/s". Raises ValueError."""
