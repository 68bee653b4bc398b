"""Data-parallel training on several devices by threads of one process.

    model = gradwire.DeviceParallel(net, ["cuda:0", "cuda:1"])

    def train(replica, index):
        optimizer = torch.optim.SGD(replica.parameters(), lr=0.1)
        for inputs, targets in batches_of(replica.rank, replica.world_size):
            loss(replica(inputs), targets).backward()    # gradients become their mean
            optimizer.step()
            optimizer.zero_grad()

    model.run(train)
"""

import contextlib
import copy
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.utils import _pytree as pytree

from gradwire import _core


class Replica(torch.nn.Module):
    """A module on one device, for one thread: after a backward, each parameter's gradient is the
    mean over all replicas of all processes. It has the use of DistributedDataParallel."""

    def __init__(
        self, module: torch.nn.Module, group: dist.ProcessGroup, device: torch.device,
        options: _core.HostOptions
    ) -> None:
        super().__init__()
        self.module = module
        self.process_group = group
        self.device = device
        parameters = [(n, p) for n, p in module.named_parameters() if p.requires_grad]
        buffers = list(module.named_buffers())
        state = [*module.named_parameters(), *buffers]
        _core.broadcast_tensors(group, [(name, tensor.detach()) for name, tensor in state])
        self._takes_outputs = options.find_unused
        self._host = _core.TrainingHost(group, parameters, options, buffers=buffers)

    @property
    def rank(self) -> int:
        """Its number among the replicas of all processes, process by process."""
        return self.process_group.rank()

    @property
    def world_size(self) -> int:
        """The number of replicas of all processes."""
        return self.process_group.size()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Broadcasts the buffers in training mode, and calls the module."""
        self._host.before_forward(self.training)
        outputs = self.module(*args, **kwargs)
        found = pytree.tree_leaves(outputs) if self._takes_outputs else []
        self._host.after_forward([each for each in found if isinstance(each, torch.Tensor)])
        return outputs

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backwards of forwards within accumulate gradients on this replica."""
        self._host.set_synchronizes(False)
        try:
            yield
        finally:
            self._host.set_synchronizes(True)

    def finish(self) -> None:
        """Waits for all means. Call it before gradients are read on another thread."""
        self._host.finish()


class DeviceParallel:
    """Replicas of a module on several devices, each with a thread in run(). Gradients are reduced
    in host memory, without sockets; with two devices they have the bits of two processes.

    module: is copied for each replica, with the values that rank 0's has.
    devices: the device of each replica, such as ["cuda:0", "cuda:1"] or ["cpu", "cpu"].
    process_group: of backend gradwire, between processes with as many devices each; nothing else
        may use it afterwards. None: this process is alone. The default group is not used.
    bucket_cap_mb, broadcast_buffers, find_unused_parameters: as DistributedDataParallel's.
    codec, codec_min_elements, codec_warmup_steps, codec_seed: compression of the gradients, with
        error feedback, such as "int8" (docs/compression.md).

    Collective over the processes. Raises ValueError for arguments, RuntimeError for what
    communication does. Not thread-safe.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        devices: Sequence[str | torch.device],
        *,
        process_group: dist.ProcessGroup | None = None,
        bucket_cap_mb: float = 4.0,
        broadcast_buffers: bool = True,
        find_unused_parameters: bool = False,
        codec: str = "none",
        codec_min_elements: int = 1024,
        codec_warmup_steps: int = 0,
        codec_seed: int = 1,
    ) -> None:
        if not devices:
            raise ValueError("DeviceParallel: devices is empty; name one for each replica")
        self.devices = [torch.device(device) for device in devices]
        options = _core.HostOptions()
        options.bucket_cap_mb = bucket_cap_mb
        options.broadcast_buffers = broadcast_buffers
        options.find_unused = find_unused_parameters
        options.codec = codec
        options.codec_min_elements = codec_min_elements
        options.codec_warmup_steps = codec_warmup_steps
        options.codec_seed = codec_seed
        self._groups = _core.device_groups(process_group, len(self.devices))
        copies = [copy.deepcopy(module).to(device) for device in self.devices]
        made: dict[int, Replica] = {}

        def make(index: int) -> None:
            made[index] = Replica(copies[index], self._groups[index], self.devices[index], options)

        self._run(make)
        self.replicas = [made[index] for index in range(len(self.devices))]

    def run(self, function: Callable[[Replica, int], Any]) -> list[Any]:
        """Calls function(replica, index) on a thread for each replica, and returns what these calls
        return. Threads share torch.get_num_threads() equally; the device is the current one. An
        exception of one ends the communication of all, on other processes too, and is raised here;
        the object is unusable then."""
        return self._run(lambda index: function(self.replicas[index], index))

    def _run(self, function: Callable[[int], Any]) -> list[Any]:
        threads = torch.get_num_threads()
        results: list[Any] = [None] * len(self.devices)
        failures: list[BaseException] = []  # The first is that which the others follow from.

        def run_one(index: int) -> None:
            try:
                torch.set_num_threads(max(1, threads // len(self.devices)))
                with _current(self.devices[index]):
                    results[index] = function(index)
            except BaseException as error:
                failures.append(error)
                _core.abort_group(self._groups[index], f"{type(error).__name__}: {error}")

        running = [threading.Thread(target=run_one, args=(index,), name=f"gradwire replica {index}")
                   for index in range(len(self.devices))]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        torch.set_num_threads(threads)
        if failures:
            raise failures[0]
        return results


def _current(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """Makes the device the current one of its type."""
    if device.type == "cpu" or device.index is None:
        return contextlib.nullcontext()
    return torch.get_device_module(device).device(device)
