"""Measures how much PyTorch's flight recorder (2.15 on) adds to an all-reduce of 4 bytes: with
gradwire, two ranks on this machine, and with a backend whose operations do nothing
(idle_backend.cpp).

usage: python bench/recorder.py [PAIRS]   in an environment with gradwire, PyTorch 2.15 or later and
ninja, and a C++ compiler. Prints medians of pairs that alternate, and their quartiles, in us."""

import os
import pathlib
import statistics
import subprocess
import sys
import time

import torch
import torch.distributed as dist

HERE = pathlib.Path(__file__).parent
BACKENDS = ("gradwire", "idle")
CALLS = 20000


def register_idle():
    from torch.utils.cpp_extension import load
    module = load("idle_backend", [str(HERE / "idle_backend.cpp")],
                  extra_cflags=["-O2", "-std=c++20"])
    dist.Backend.register_backend("idle", module.make, devices=["cpu"])


def entries(backend):
    import json
    from torch._C._distributed_c10d import _dump_fr_trace_json
    dump = _dump_fr_trace_json(includeCollectives=True, onlyActive=False, backend=backend)
    return json.loads(dump).get("entries", [])


def rank():
    """Prints the median over 20 parts of one rank's time per call, in us."""
    backend = os.environ["BACKEND"]
    if backend == "idle":
        register_idle()
    dist.init_process_group(backend)
    tensor = torch.zeros(1)
    parts = []
    for _ in range(20):
        begin = time.perf_counter()
        for _ in range(CALLS // 20):
            dist.all_reduce(tensor)
        parts.append((time.perf_counter() - begin) / (CALLS // 20) * 1e6)
    recorded = len(entries(backend)) > 0
    if recorded != (int(os.environ["TORCH_FR_BUFFER_SIZE"]) > 0):
        sys.exit(f"recorder: {backend} has {'' if recorded else 'no '}entries")
    if dist.get_rank() == 0:
        print(statistics.median(parts))


def measure(backend, recorder):
    environment = os.environ | {"BACKEND": backend, "OMP_NUM_THREADS": "1",
                                "TORCH_FR_BUFFER_SIZE": "2000" if recorder else "0"}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
               "2" if backend == "gradwire" else "1", __file__, "rank"]
    done = subprocess.run(command, env=environment, text=True, stdout=subprocess.PIPE, check=True)
    return float(done.stdout)


def main(pairs):
    added = {backend: [] for backend in BACKENDS}
    for _ in range(pairs):
        for backend in BACKENDS:
            off, on = measure(backend, False), measure(backend, True)
            added[backend].append(on - off)
            print(f"{backend}: {off:.2f} us without the recorder, {on:.2f} with it", flush=True)
    for backend, values in added.items():
        low, middle, high = statistics.quantiles(values, n=4)
        print(f"the recorder adds to {backend}: {middle:.2f} us (quartiles {low:.2f}, {high:.2f})")


if __name__ == "__main__":
    if sys.argv[1:] == ["rank"]:
        rank()
    else:
        main(int(sys.argv[1]) if sys.argv[1:] else 15)
