"""Federated averaging in one simulator of bench/federated.py: 1,000 clients with 60 images of
Fashion-MNIST each, of which 50 train in a round: one epoch in batches of 10, SGD, no evaluation.
Prints seconds per round and the memory at the end as one line of JSON. The first round, in which
processes start, is not counted.

flower: Flower's simulation, NumPyClient in PROCESSES actors of Ray.
pfl: pfl-research, one process.
gradwire: gradwire.federated.simulate, one process.
loop: the same steps one after the other, and nothing else: what any simulator must do.

usage: federated_peer.py flower|pfl|gradwire|loop mlp|cnn ROUNDS PROCESSES FOLDER
"""

import gzip
import json
import os
import pathlib
import resource
import sys
import time

import numpy as np
import torch
from torch import nn

CLIENTS, COHORT, BATCH, RATE, SEED = 1000, 50, 10, 0.03, 1


def make_model(kind):
    torch.manual_seed(SEED)
    if kind == "mlp":
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 200),
                             nn.ReLU(), nn.Linear(200, 10))
    return nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                         nn.Linear(1568, 128), nn.ReLU(), nn.Linear(128, 10))


def read(folder, name, header):
    with gzip.open(pathlib.Path(folder) / name) as file:
        return torch.frombuffer(bytearray(file.read()[header:]), dtype=torch.uint8)


def client_data(folder):
    """Images and labels, in equal parts: (clients, samples of each, ...)."""
    images = read(folder, "train-images-idx3-ubyte.gz", 16).view(-1, 1, 28, 28).float() / 255
    labels = read(folder, "train-labels-idx1-ubyte.gz", 8).long()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(SEED))
    each = len(labels) // CLIENTS
    return images[order].view(CLIENTS, each, 1, 28, 28), labels[order].view(CLIENTS, each)


def train(model, images, labels):
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    for batch in torch.randperm(len(labels)).split(BATCH):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
        optimizer.step()


def run_loop(kind, rounds, _, data):
    model, (images, labels) = make_model(kind), data
    ends = [time.monotonic()]
    for _ in range(rounds):
        for client in torch.randperm(CLIENTS)[:COHORT]:
            train(model, images[client], labels[client])
        ends.append(time.monotonic())
    return ends


def run_gradwire(kind, rounds, _, data):
    from gradwire import federated
    from torch.utils.data import TensorDataset

    ends = [time.monotonic()]
    federated.simulate(
        make_model(kind), [TensorDataset(*pair) for pair in zip(*data)], rounds=rounds, use=COHORT,
        batch_size=BATCH, optimizer=lambda parameters: torch.optim.SGD(parameters, lr=RATE),
        on_round=lambda _: ends.append(time.monotonic()))
    return ends


def run_pfl(kind, rounds, _, data):
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.pytorch import PyTorchTensorDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam import NNTrainHyperParams
    from pfl.metrics import Metrics
    from pfl.model.pytorch import PyTorchModel

    images, labels = data
    module = make_model(kind)
    module.loss = lambda x, y, eval=False: nn.functional.cross_entropy(module(x), y)
    module.metrics = lambda x, y, eval=False: {}
    model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))
    users = FederatedDataset(
        lambda user: PyTorchTensorDataset(tensors=[images[user], labels[user]]),
        get_user_sampler("random", list(range(CLIENTS))))
    ends = [time.monotonic()]

    class Clock(TrainingProcessCallback):
        def after_central_iteration(self, metrics, model, *, central_iteration):
            ends.append(time.monotonic())
            return False, Metrics()

    FederatedAveraging().run(
        NNAlgorithmParams(central_num_iterations=rounds, evaluation_frequency=rounds + 1,
                          train_cohort_size=COHORT, val_cohort_size=None),
        SimulatedBackend(training_data=users, val_data=None), model,
        NNTrainHyperParams(local_learning_rate=RATE, local_num_epochs=1, local_batch_size=BATCH),
        callbacks=[Clock()])
    return ends


_shared = {}  # In a process of Flower's: the module and the clients' data.


def flower_client(kind, folder):
    """The client_fn of an actor, which keeps its module and maps the data of all clients."""
    from flwr.client import NumPyClient

    def shared():
        if not _shared:
            torch.set_num_threads(1)
            _shared["model"] = make_model(kind)
            _shared["data"] = [torch.from_numpy(np.load(f"{folder}/{name}.npy", mmap_mode="c"))
                               for name in ("images", "labels")]
        return _shared["model"], _shared["data"]

    class Client(NumPyClient):
        def __init__(self, number):
            self.number = number

        def fit(self, parameters, config):
            model, (images, labels) = shared()
            with torch.no_grad():
                for own, given in zip(model.parameters(), parameters):
                    own.copy_(torch.from_numpy(given))
            train(model, images[self.number], labels[self.number])
            return ([own.detach().numpy() for own in model.parameters()],
                    len(labels[self.number]), {})

    return lambda context: Client(int(context.node_config["partition-id"])).to_client()


def run_flower(kind, rounds, processes, data):
    import tempfile

    from flwr.client import ClientApp
    from flwr.common import ndarrays_to_parameters
    from flwr.server import ServerApp, ServerAppComponents, ServerConfig
    from flwr.server.strategy import FedAvg
    from flwr.simulation import run_simulation

    ends = [time.monotonic()]

    class Timed(FedAvg):
        def aggregate_fit(self, server_round, results, failures):
            if failures or len(results) != COHORT:
                raise SystemExit(f"{len(results)} of {COHORT} clients trained: {failures[:1]}")
            done = super().aggregate_fit(server_round, results, failures)
            ends.append(time.monotonic())
            return done

    start = ndarrays_to_parameters([p.detach().numpy() for p in make_model(kind).parameters()])
    strategy = Timed(fraction_fit=COHORT / CLIENTS, fraction_evaluate=0, min_fit_clients=COHORT,
                     min_available_clients=CLIENTS, initial_parameters=start)
    with tempfile.TemporaryDirectory() as folder:
        for name, tensor in zip(("images", "labels"), data):
            np.save(f"{folder}/{name}.npy", tensor.numpy())
        run_simulation(
            server_app=ServerApp(server_fn=lambda context: ServerAppComponents(
                strategy=strategy, config=ServerConfig(num_rounds=rounds))),
            client_app=ClientApp(client_fn=flower_client(kind, folder)), num_supernodes=CLIENTS,
            backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0},
                            "init_args": {"num_cpus": processes, "include_dashboard": False}})
    return ends


def resident_mb():
    """The largest resident memory of this process and of the children that have ended."""
    return sum(resource.getrusage(who).ru_maxrss
               for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) / 1e3


def main():
    way, kind, rounds, processes, folder = sys.argv[1:]
    ways = {"flower": run_flower, "pfl": run_pfl, "gradwire": run_gradwire, "loop": run_loop}
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)  # More are slower: the tensors of a batch are small.
    ends = ways[way](kind, int(rounds) + 1, int(processes), client_data(folder))
    seconds = [after - before for before, after in zip(ends, ends[1:])][1:]
    if len(seconds) != int(rounds):
        raise SystemExit(f"{len(seconds)} rounds of {rounds} were measured")
    print(json.dumps({"seconds": seconds, "resident_mb": resident_mb()}), flush=True)


if __name__ == "__main__":
    main()
