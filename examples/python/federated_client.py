"""A client of federated learning: a small network learns ten classes of synthetic images, of which
each client has its own.

    python examples/python/federated_client.py --write net.safetensors
    gradwire federate serve federated.json --key server.key --listen :29500 --output run
    python examples/python/federated_client.py phone-17.json --server head:29500

with `"model": {"file": "net.safetensors"}` in federated.json, and an identity for each client, of
`gradwire federate enrol`.
"""

import argparse

import torch
from safetensors.torch import save_file
from torch import nn
from torch.utils.data import TensorDataset

import gradwire


def images(count, seed):
    """Returns `count` images of 14 x 14, noise around one of ten patterns, with their labels."""
    patterns = torch.rand(10, 1, 14, 14, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(seed)
    kinds = torch.randint(0, 10, (count,), generator=generator)
    noise = torch.randn(count, 1, 14, 14, generator=generator)
    return TensorDataset(patterns[kinds] + noise, kinds)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(14 * 14, 32), nn.ReLU(), nn.Linear(32, 10))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("identity", nargs="?", help="the client's file of gradwire federate enrol")
    parser.add_argument("--server", default="", help="HOST:PORT; default: that of the identity")
    parser.add_argument("--write", metavar="FILE", help="only write the first values of the model")
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1, help="of this client's images")
    parser.add_argument("--secure", action="store_true", help="require secure aggregation")
    given = parser.parse_args()
    if given.write:
        save_file(network().state_dict(), given.write)
        return
    if not given.identity:
        parser.error("give the identity of this client, or --write FILE")
    client = gradwire.FederatedClient(
        given.identity, network(), images(given.images, given.seed), server=given.server,
        held_out=images(100, given.seed + 1000), secure=given.secure)

    def show(done):
        accuracy, _ = done.before.means()
        print(f"round {done.round}: accuracy before {100 * accuracy:.1f} %, "
              f"{'counted' if done.counted else done.reason}", flush=True)

    print(f"counted in {client.run(show)} rounds")


if __name__ == "__main__":
    main()
