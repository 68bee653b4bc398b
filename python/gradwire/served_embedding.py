"""Embedding tables with rows on parameter servers, beside layers that data parallelism trains.

    table = gradwire.ServedEmbedding(rows=10_000_000, width=16, staleness=4)
    model = DistributedDataParallel(net)
    table.prefetch(next_ids)                 # up to 4 batches ahead
    rows = table(ids)                        # ids.shape x width
    loss_of(model(dense, rows)).backward()
    optimizer.step()
    table.step()                             # the gradients of this batch's rows leave

docs/servers.md, "Embeddings", has the rule of staleness.
"""

from typing import Any, Self

import torch
import torch.distributed as dist

from gradwire import _core
from gradwire.serving import Leaving, end_server, group_or_world


class ServedEmbedding(Leaving):
    """An embedding table whose rows are on servers, by id modulo their number. A step is the mean
    of all workers' gradients, added in the order of the workers, and the server's optimizer steps
    the rows that a batch has. Look-up c is answered when step c - 1 - `staleness` is applied. With
    staleness 0 one worker has the bits of torch.nn.Embedding(sparse=True) in whose gradients equal
    ids are added (coalesce()).

    rows, width: ids are 0 to rows - 1, and a row has `width` float32 elements.
    staleness: steps that a look-up may lack: batches that can be prefetched.
    seed: each row begins uniform in [-0.01, 0.01), by seed and id; its first step takes memory.
    optimizer: "sgd" or "adagrad", torch.optim's with `learning_rate` and no further options.
    servers: number of servers beside workers, the first ones; 0: one on each. Ignored if `gradwire
        run --servers` has given them ranks of their own: there the program ends in the constructor,
        when all workers have left.
    process_group: of the workers, or of the servers; None: the default group.

    All arguments must be the same on workers and servers. Collective. Raises ValueError for
    arguments and ids that are out of range, RuntimeError for what communication does. Not
    thread-safe.
    """

    def __init__(
        self,
        rows: int,
        width: int,
        *,
        staleness: int = 0,
        seed: int = 0,
        optimizer: str = "sgd",
        learning_rate: float = 0.05,
        servers: int = 0,
        process_group: dist.ProcessGroup | None = None,
    ) -> None:
        options = _core.EmbeddingOptions()
        options.rows, options.width, options.staleness = rows, width, staleness
        options.seed, options.servers = seed, servers
        options.optimizer, options.learning_rate = optimizer, learning_rate
        group = group_or_world(process_group, "ServedEmbedding")
        table = _core.open_embedding(group, options)
        if table is None:
            end_server()
        self._core: _core.EmbeddingTable = table
        self._leave_at_exit()

    def prefetch(self, ids: torch.Tensor) -> None:
        """Begins to look up the rows of a later batch. Batches are used in this order. Raises
        ValueError without a free permit."""
        self._core.prefetch(ids)

    def __call__(self, ids: torch.Tensor) -> torch.Tensor:
        """Returns the rows of ids of any shape (int64), as ids.shape x width: of the batch that was
        prefetched first, or else they are looked up. Their gradients reach the table. Call step()
        before the next. Under torch.no_grad(): read()."""
        return self._core.look_up(ids)

    def step(self) -> None:
        """Pushes the gradients of the batch. Gradients of equal ids are added first."""
        self._core.step()

    def set_rate(self, rate: float) -> None:
        """Sets the factor on the learning rate of the following steps; at first 1. The same on all
        workers."""
        self._core.set_rate(rate)

    def read(self, ids: torch.Tensor) -> torch.Tensor:
        """Returns rows with all gradients that this worker has pushed, and those of the same steps
        of others, without a permit: for evaluation. Waits until the others have pushed them."""
        return self._core.read(ids)

    def synchronize(self) -> None:
        """Waits until all gradients that this worker has pushed are applied."""
        self._core.synchronize()

    def gather(self) -> torch.Tensor:
        """Returns the whole table, rows x width, as read() does."""
        return self._core.gather()

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Returns the rows that were made: "ids", "values", and with Adagrad the "states" of the
        optimizer. One worker calls it, after synchronize() on all and before any pushes."""
        return dict(zip(("ids", "values", "states"), self._core.made()))

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Puts the rows of a state_dict() back, on any number of servers; worker 0's count.
        Collective; before any look-up."""
        self._core.load(state["ids"], state["values"], state["states"])

    def report(self) -> dict[str, Any]:
        """Returns what the servers have done so far: rows "made" and their "bytes", "steps",
        "staleness_mean" and "staleness_max" of the applied gradients in steps, and "permits_max",
        the largest number of permits that a worker had."""
        return self._core.report()

    @property
    def free_permits(self) -> int:
        """Number of batches that can be looked up before step()."""
        return self._core.free_permits

    @property
    def bytes_sent(self) -> int:
        """Bytes of ids, gradients, rows and requests that this rank has sent so far."""
        return self._core.bytes_sent

    def __enter__(self) -> Self:
        return self
