"""Generates records of runs that resemble those of gradwire train, always the same ones."""

import json
import math
import pathlib
import random

CATEGORIES = ["parameters", "gradients", "optimiser", "activations", "communication", "other"]
MIB = 1 << 20


def memory(shards, steps, step_s):
    """A sawtooth: activations and gradients grow and shrink in each step. Bytes, per category."""
    samples = []
    for step in range(steps):
        for i in range(16):
            share = 1 - abs(i - 8) / 8
            samples.append(((step + i / 16) * step_s, step, [
                int(96 * MIB / shards), int(96 * MIB * (i > 8) * (i - 8) / 8 / shards),
                int(192 * MIB / shards), int(300 * MIB * share), int(25 * MIB * (i > 8)), 3 * MIB]))
    return {"peak_bytes": max(sum(bytes_) for _, _, bytes_ in samples),
            "time_s": [s[0] for s in samples], "step": [s[1] for s in samples],
            "bytes": {name: [s[2][i] for s in samples] for i, name in enumerate(CATEGORIES)}}


def summary(ranks, steps, compute, exposed, accuracy=0.9):
    return {"ranks": ranks, "steps": steps, "test_accuracy": accuracy, "test_loss": 0.31,
            "test_images": 10000, "training_s": steps * (compute + exposed),
            "images_per_second": 256 / (compute + exposed), "compute_ms": 1e3 * compute,
            "exposed_ms": 1e3 * exposed, "data_ms": 0.4, "gradient_bytes_per_step": 96.0 * MIB,
            "sent_bytes_per_step": 2 * (ranks - 1) / ranks * 96 * MIB, "checkpoint": ""}


def run(name, strategy, ranks=1, shards=1, compute=0.25, exposed=0.0, steps=300, seed=1,
        record_memory=True):
    """Returns the content of such a run's run.json."""
    noise = random.Random(seed)
    same = random.Random(7)  # All runs have the same losses.
    times = [compute * (1 + abs(noise.gauss(0, 0.05))) for _ in range(steps)]
    waits = [exposed * (1 + abs(noise.gauss(0, 0.2))) for _ in range(steps)]
    epoch = max(steps // 6, 1)
    whole = [sum(times[i:i + epoch]) + sum(waits[i:i + epoch]) for i in range(0, steps, epoch)]
    record = {
        "format": "gradwire run", "version": 1, "name": name, "strategy": strategy,
        "config": {"batch_size": 256, "model": {"name": "resnet"}},
        "summary": summary(ranks, steps, compute, exposed),
        "steps": {"every": 1, "step": list(range(steps)),
                  "loss": [2.3 * math.exp(-i / 90) + 0.2 + same.gauss(0, 0.03)
                           for i in range(steps)],
                  "learning_rate": [0.1 * min(1, (i + 1) / 30) for i in range(steps)],
                  "compute_s": times, "exposed_s": waits, "data_s": [0.0004] * steps},
        "hosts": [f"host-{rank // 2}" for rank in range(ranks)],
        "tests": {"step": list(range(epoch, steps + 1, epoch)),
                  "loss": [0.3 + 1 / i for i in range(1, steps // epoch + 1)],
                  "accuracy": [0.9 - 0.5 / i for i in range(1, steps // epoch + 1)]},
        "epoch_s": whole, "peak_rank_bytes": 0}
    if record_memory:
        record["memory"] = memory(shards, 40, compute + exposed)
    return record


def ladder():
    """Returns the output of gradwire bench step --ladder --json."""
    def row(system, codec, overlap, eta, bound):
        return {"system": system, "codec": codec, "accumulate": 1, "local_steps": 1,
                "overlap": overlap, "ranks": 4, "steps": 20, "single_ms": 234.0,
                "step_ms": 234 / eta, "exposed_ms": 234 / eta - 234, "eta": eta,
                "bytes_per_step": 153e6, "cpu_ms": 200.0, "bound": bound}
    return {"rows": [row("gradwire", "none", "none", 0.665, 0.7),
                     row("ddp", "none", "none", 0.61, 0.7),
                     row("gradwire", "none", "full", 0.992, 1.0),
                     row("ddp", "none", "full", 0.81, 1.0),
                     row("gradwire", "bf16", "full", 0.999, 1.0),
                     row("gradwire", "int8", "full", 0.998, 1.0)]}


def federated(rounds=40, clients=30, seed=1, tested=True, classes=True):
    """Returns a result of gradwire federate simulate; without `tested` and `classes`, as one of
    gradwire federate serve whose clients hold out nothing."""
    noise = random.Random(seed)

    def round_(number):
        is_abandoned = number % 9 == 0
        measured = tested and not is_abandoned
        return {"round": number, "accuracy": 0.9 - 0.8 / number if measured else None,
                "loss": 0.3 + 2 / number if measured else None, "asked": 12, "ready": 10,
                "used": 0 if is_abandoned else 10, "stopped": 0, "dropped": number % 3,
                "abandoned": is_abandoned, "up_bytes": 1.5 * MIB, "down_bytes": 3.0 * MIB,
                "seconds": 25.0, "training_loss": None if is_abandoned else 1 / number}

    def client(i):
        counted = noise.randrange(rounds // 2 + 1)
        return {"samples": 20 * (i + 1), "eligible": rounds, "asked": counted + 2,
                "counted": counted, "accuracy": noise.random() if tested else None,
                "compute_seconds": 5.0 * counted, "up_bytes": 1e5 * counted,
                "down_bytes": 2e5 * (counted + 2)}

    def class_(i, name):
        return {"devices": name, "clients": clients // 3, "sample_share": [0.5, 0.3, 0.2][i],
                "counted_share": [0.25, 0.35, 0.4][i], "accuracy": [0.5, 0.6, 0.7][i],
                "compute_seconds": [150.0, 60.0, 20.0][i], "up_bytes": 1e6 * (i + 1),
                "down_bytes": 2e6 * (i + 1)}
    names = ["slow", "middle", "fast"] if classes else []
    return {"rounds": [round_(i + 1) for i in range(rounds)],
            "fairness": {"jain": 0.85, "mean_accuracy": 0.61 if tested else None,
                         "worst_tenth_accuracy": 0.125 if tested else None,
                         "classes": [class_(i, name) for i, name in enumerate(names)]},
            "clients": [client(i) for i in range(clients)]}


EXPERIMENT = [
    dict(name="control", strategy="1 rank", compute=0.52),
    dict(name="ddp-x2", strategy="DDP x2", ranks=2, compute=0.27, exposed=0.03),
    dict(name="ddp-x4", strategy="DDP x4", ranks=4, compute=0.14, exposed=0.05),
    dict(name="zero1-x4", strategy="ZeRO-1 x4", ranks=4, shards=1.6, compute=0.14, exposed=0.052),
    dict(name="zero2-x4", strategy="ZeRO-2 x4", ranks=4, shards=2.3, compute=0.14, exposed=0.055),
    dict(name="zero3-x2", strategy="ZeRO-3 x2", ranks=2, shards=2, compute=0.28, exposed=0.06),
    dict(name="zero3-x4", strategy="ZeRO-3 x4", ranks=4, shards=4, compute=0.15, exposed=0.09),
]


def write(folder, runs):
    """Writes each as FOLDER/NAME/run.json; returns the folders."""
    made = []
    for i, options in enumerate(runs):
        place = pathlib.Path(folder) / f"run{i}"
        place.mkdir(parents=True)
        (place / "run.json").write_text(json.dumps(run(seed=i + 1, **options)))
        made.append(str(place))
    return made


def write_ladder(folder, name="2.5 Gb/s"):
    path = pathlib.Path(folder) / "ladder.json"
    path.write_text(json.dumps(ladder()))
    return f"{name}={path}"


def write_federated(folder, runs):
    """Writes FOLDER/NAME.json of each: options by name. Returns the paths."""
    made = []
    for name, options in runs.items():
        made.append(pathlib.Path(folder) / f"{name}.json")
        made[-1].write_text(json.dumps(federated(**options)))
    return made
