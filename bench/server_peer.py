"""One rank of a peer in bench/servers.py: a parameter server as one writes it with PyTorch, in
torchrun's environment. Rank 0 serves, and the others work: they wait as long as a pass would
take, push all gradients, and pull all parameters. The server adds the gradients and steps SGD.
Each worker prints its figures as one line of JSON, and with rpc the server the staleness.

rpc: as PyTorch's tutorial on batch RPC processing has it: a worker's gradients are the arguments of
a remote call, whose result is the parameters. With async each call is a step.
gloo: a star of sends and receives of one flat tensor, with sync alone.

usage: server_peer.py rpc|gloo sync|async TENSORS BYTES_OF_EACH COMPUTE_MS STEPS
"""

import faulthandler
import json
import os
import pathlib
import statistics
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch.distributed import rpc
from torch.futures import Future

WARM_UP = 3
LIMIT_S = 300
LEARNING_RATE = 1e-3


def sent_bytes():
    return int(pathlib.Path("/sys/class/net/gw0/statistics/tx_bytes").read_text())


def work(exchange, rank, compute_s, steps):
    """Measures steps of a pass that waits, and of `exchange`."""
    for _ in range(WARM_UP):
        time.sleep(compute_s)
        exchange()
    begin, before = time.monotonic(), sent_bytes()
    for _ in range(steps):
        time.sleep(compute_s)
        exchange()
    print(json.dumps({"worker": rank, "step_ms": 1e3 * (time.monotonic() - begin) / steps,
                      "sent_mb": (sent_bytes() - before) / steps / 1e6}), flush=True)


class Server:
    """Parameters and their optimizer. A step is made of `batch` workers' gradients."""

    def __init__(self, tensors, elements, batch):
        self.parameters = [torch.zeros(elements) for _ in range(tensors)]
        for parameter in self.parameters:
            parameter.grad = torch.zeros(elements)
        self.optimizer = torch.optim.SGD(self.parameters, lr=LEARNING_RATE)
        self.batch, self.arrived, self.version, self.staleness = batch, 0, 0, []
        self.lock, self.answer = threading.Lock(), Future()

    def update_and_fetch(self, gradients, version):
        with self.lock:
            self.staleness.append(self.version - version)
            for parameter, gradient in zip(self.parameters, gradients):
                parameter.grad += gradient
            self.arrived += 1
            answer = self.answer
            if self.arrived == self.batch:
                self.step()
                self.answer = Future()
                answer.set_result((self.parameters, self.version))
        return answer

    def step(self):
        for parameter in self.parameters:
            parameter.grad /= self.batch
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=False)
        self.arrived = 0
        self.version += 1


server = None  # On rank 0.


@rpc.functions.async_execution
def update_and_fetch(gradients, version):
    return server.update_and_fetch(gradients, version)


def run_rpc(mode, tensors, elements, compute_s, steps):
    global server
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if rank == 0:
        server = Server(tensors, elements, ranks - 1 if mode == "sync" else 1)
    dist.init_process_group("gloo")  # For the barrier: rpc.shutdown() fails if rank 0 exits first.
    # Not through shared memory, which the hosts of a benchmark have in common.
    options = rpc.TensorPipeRpcBackendOptions(_transports=["uv"], _channels=["basic"],
                                              rpc_timeout=LIMIT_S)
    rpc.init_rpc(f"rank{rank}", rank=rank, world_size=ranks, rpc_backend_options=options)
    if rank > 0:
        gradients = [1e-3 * torch.randn(elements) for _ in range(tensors)]
        version = 0

        def exchange():
            nonlocal version
            _, version = rpc.rpc_sync("rank0", update_and_fetch, (gradients, version))

        work(exchange, rank, compute_s, steps)
    dist.barrier()
    if rank == 0:
        print(json.dumps({"staleness": statistics.mean(server.staleness)}), flush=True)


def serve_gloo(workers, size, steps):
    parameters = torch.zeros(size)
    parameters.grad = torch.zeros(size)
    optimizer = torch.optim.SGD([parameters], lr=LEARNING_RATE)
    gradients = [torch.zeros(size) for _ in workers]
    for _ in range(steps):
        arriving = [dist.irecv(gradient, worker) for worker, gradient in zip(workers, gradients)]
        parameters.grad.zero_()
        for arrived, gradient in zip(arriving, gradients):
            arrived.wait()
            parameters.grad += gradient
        parameters.grad /= len(workers)
        optimizer.step()
        for sent in [dist.isend(parameters, worker) for worker in workers]:
            sent.wait()


def run_gloo(tensors, elements, compute_s, steps):
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), tensors * elements
    if rank == 0:
        serve_gloo(range(1, dist.get_world_size()), size, WARM_UP + steps)
    else:
        gradient, parameters = 1e-3 * torch.randn(size), torch.zeros(size)

        def exchange():
            dist.send(gradient, 0)
            dist.recv(parameters, 0)

        work(exchange, rank, compute_s, steps)
    dist.barrier()


def main():
    way, mode, tensors, size = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    compute_s, steps = float(sys.argv[5]) / 1e3, int(sys.argv[6])
    if way not in ("rpc", "gloo") or mode not in (("sync", "async") if way == "rpc" else ("sync",)):
        sys.exit(__doc__)
    faulthandler.dump_traceback_later(LIMIT_S, exit=True)  # A rank that hangs prints its stack.
    torch.set_num_threads(1)
    if way == "rpc":
        run_rpc(mode, tensors, size // 4, compute_s, steps)
    else:
        run_gloo(tensors, size // 4, compute_s, steps)
    os._exit(0)  # PyTorch's threads sometimes abort the process as it ends.


if __name__ == "__main__":
    for variable in ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"):
        os.environ.setdefault(variable, "gw0")
    main()
