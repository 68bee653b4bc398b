"""The local training of federated learning: of simulated clients, and of a server's."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

Optimizers = Callable[[Iterable[torch.nn.Parameter]], torch.optim.Optimizer]
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class LocalModel:
    """A module, and the global values of its trainable parameters and floating buffers as one
    vector. These are in order of their names, as in a server's file: rounding depends on it."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module
        kept = module.state_dict().keys()
        parameters = sorted((name, one) for name, one in module.named_parameters()
                            if one.requires_grad)
        buffers = sorted((name, one) for name, one in module.named_buffers()
                         if one.is_floating_point() and name in kept)
        self.parameters = [one for _, one in parameters]
        self.names = [name for name, _ in [*parameters, *buffers]]
        self.tensors: list[torch.Tensor] = [*self.parameters, *(one for _, one in buffers)]
        for name, one in zip(self.names, self.tensors, strict=True):
            if one.dtype != torch.float32 or one.device.type != "cpu":
                raise ValueError(
                    f"federated learning has parameters of type float32 on the CPU, and {name} is "
                    f"{one.dtype} on {one.device}: convert the module with .float().cpu()")
        self.values = self.flat()
        self.count = sum(one.numel() for one in self.parameters)
        self.stepped = torch.nn.Parameter(self.values[: self.count])  # The same memory.
        self.shaped = [torch.nn.Parameter(part.view(one.shape)) for part, one in zip(
            self.stepped.detach().split([one.numel() for one in self.parameters]),
            self.parameters, strict=True)]

    @torch.no_grad()
    def flat(self) -> torch.Tensor:
        return torch.cat([one.detach().reshape(-1) for one in self.tensors])

    @torch.no_grad()
    def load(self) -> None:
        """Gives the module the global values."""
        at = 0
        for one in self.tensors:
            one.copy_(self.values[at : at + one.numel()].view(one.shape))
            at += one.numel()


class Evaluated(NamedTuple):
    """How well a model classifies samples."""

    samples: int = 0
    correct: int = 0
    loss: float = 0.0  # The sum over the samples.

    def means(self) -> tuple[float, float]:
        """Returns the accuracy, and the mean loss."""
        return self.correct / self.samples, self.loss / self.samples


class LocalTraining:
    """Trains the module on one client after another. `datasets`: by client."""

    def __init__(self, model: LocalModel, datasets: Sequence[Dataset] | Mapping[int, Dataset],
                 batch_size: int, optimizer: Optimizers, loss: Loss, proximal: float,
                 seed: int) -> None:
        self.model, self.datasets, self.loss = model, datasets, loss
        self.batch_size, self.optimizer = batch_size, optimizer
        self.proximal, self.seed = proximal, seed

    def batches(self, dataset: Dataset, generator: torch.Generator) -> Iterable[Any]:
        size = self.batch_size or len(dataset)  # type: ignore[arg-type]
        if not isinstance(dataset, TensorDataset):
            return DataLoader(dataset, size, shuffle=True, generator=generator)
        order = torch.randperm(len(dataset), generator=generator)
        return ([one[part] for one in dataset.tensors] for part in order.split(size))

    def steps(self, client: int, epochs: float) -> int:
        """Returns the number of steps in `epochs` epochs of this client."""
        samples = len(self.datasets[client])  # type: ignore[arg-type]
        return int(epochs * -(-samples // (self.batch_size or samples)) + 1e-9)

    def train(self, client: int, number: int, epochs: float,
              goes_on: Callable[[], bool] = lambda: True) -> tuple[Any, ...]:
        """Returns the update, the steps and their mean loss, and nothing evaluated. `goes_on` is
        called before each step, and returns False to end here."""
        module, dataset = self.model.module, self.datasets[client]
        generator = torch.Generator().manual_seed(hash((self.seed, number, client)) % 2**63)
        torch.manual_seed(generator.initial_seed())
        self.model.load()
        module.train()
        optimizer = self.optimizer(self.model.parameters)
        steps = self.steps(client, epochs)
        done, losses, ended = 0, 0.0, False
        while done < steps and not ended:
            for inputs, targets in self.batches(dataset, generator):
                ended = not goes_on()
                if ended:
                    break
                optimizer.zero_grad()
                value = self.loss(module(inputs), targets)
                value.backward()
                self.add_proximal()
                optimizer.step()
                losses += value.item()
                done += 1
                if done == steps:
                    break
        update = self.model.flat() - self.model.values.detach()
        return update, done, losses / max(done, 1), *Evaluated()

    @torch.no_grad()
    def add_proximal(self) -> None:
        if self.proximal == 0:
            return
        for one, start in zip(self.model.parameters, self.model.shaped, strict=True):
            if one.grad is not None:
                one.grad.add_(one - start, alpha=self.proximal)

    @torch.no_grad()
    def evaluate(self, dataset: Dataset) -> Evaluated:
        """Tests the global values."""
        self.model.load()
        module = self.model.module.eval()
        count, correct, losses = 0, 0, 0.0
        for inputs, targets in DataLoader(dataset, 500):
            outputs = module(inputs)
            losses += self.loss(outputs, targets).item() * targets.numel()
            correct += int((outputs.argmax(1) == targets).sum())
            count += targets.numel()
        return Evaluated(count, correct, losses)
