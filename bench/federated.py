#!/usr/bin/env python3
"""Federated learning on Fashion-MNIST, for docs/federated.md.

rounds: rounds until a two-layer net has an accuracy, for FedSGD and for federated averaging with
more local work, as in table 2 of McMahan et al. (AISTATS 2017): 100 clients, of which ten train
in a round. Each row has its best learning rate of one grid, chosen with the first seed.
stragglers: loss and accuracy on FedProx's synthetic(1,1) where 90 % of the clients have no time for
all 20 epochs, as in figure 1 of Li et al. (MLSys 2020): they are dropped, count, or count with the
proximal term. Means of the last 30 of 60 rounds, on held-out samples of all clients.
simulators: seconds per round of `gradwire federate simulate`, and of the simulators in
federated_peer.py, in turn, with two cores.

usage: federated.py rounds|stragglers|simulators GRADWIRE JSON [--python P] [--seeds K] [--turns K]
"""

import argparse
import json
import math
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
FOLDER = "/usr/share/datasets/fashion-mnist"
NET = {"name": "mlp", "hidden": 200, "layers": 3}
CNN = {"name": "convnet", "channels": 16, "hidden": 128}
RATES = (0.03, 0.1, 0.3, 1)
PARTITIONS = {"IID, to 83 %": ({"kind": "iid", "clients": 100}, 0.83),
              "two shards a client, to 70 %": ({"kind": "shards", "shards": 2, "clients": 100},
                                               0.70)}
# Local epochs, batch size, rounds that are simulated.
ROWS = {"FedSGD": (1, 0, 400), "E 1, B 10": (1, 10, 100), "E 5, B 10": (5, 10, 40)}
# Incomplete work, mu.
STRAGGLERS = {"stragglers are dropped (FedAvg)": ("drop", 0),
              "their work counts": ("count", 0),
              "their work counts, mu = 1 (FedProx)": ("count", 1)}
CLIENTS, COHORT, BATCH = 1000, 50, 10  # The same as in federated_peer.py.
LIMIT_S = 1800


def simulate(given, config, *options):
    """Returns the JSON of a simulation, or None if its training diverged."""
    with tempfile.TemporaryDirectory() as folder:
        file, result = pathlib.Path(folder) / "config.json", pathlib.Path(folder) / "result.json"
        file.write_text(json.dumps(config))
        done = subprocess.run([given.gradwire, "federate", "simulate", file, "--json", result,
                               *options], capture_output=True, text=True, timeout=LIMIT_S)
        if done.returncode != 0 and "not finite" in done.stderr:
            return None
        if done.returncode != 0:
            raise SystemExit(done.stderr)
        return json.loads(result.read_text()) | {"said": done.stdout + done.stderr}


def rounds_to_target(given, partition, target, row, rate, seed):
    """Interpolated rounds; infinite if the accuracy is not reached."""
    epochs, batch, rounds = row
    found = simulate(given, {
        "model": NET, "data": {"name": "fashion_mnist"}, "partition": partition, "rounds": rounds,
        "round": {"ask": 10, "use": 10, "least": 10}, "seed": seed,
        "local": {"epochs": epochs, "batch_size": batch, "learning_rate": rate}},
        "--target", str(target))
    reached = found and found.get("target")
    return reached["rounds"] if reached and reached["rounds"] else math.inf


def measure_rounds(given):
    results = {}
    for title, (partition, target) in PARTITIONS.items():
        for name, row in ROWS.items():
            def run(rate, seed):
                return rounds_to_target(given, partition, target, row, rate, seed)

            by_rate = {rate: run(rate, 1) for rate in RATES}
            rate = min(by_rate, key=by_rate.get)
            seeds = [by_rate[rate], *(run(rate, seed) for seed in range(2, given.seeds + 1))]
            results[f"{title}: {name}"] = {"rate": rate, "rounds": seeds, "by_rate": by_rate}
            given.json.write_text(json.dumps(results, indent=1) + "\n")
            print(f"{title}: {name}, rate {rate}: {seeds}", file=sys.stderr, flush=True)
    return results


def print_rounds(results):
    print("| | learning rate | rounds, mean of the seeds (fewest, most) | against FedSGD |\n"
          "| --- | --- | --- | --- |")
    for title in PARTITIONS:
        base = statistics.mean(results[f"{title}: FedSGD"]["rounds"])
        for name in ROWS:
            row = results[f"{title}: {name}"]
            mean = statistics.mean(row["rounds"])
            print(f"| {title}: {name} | {row['rate']} | {mean:.1f} ({min(row['rounds']):.1f}, "
                  f"{max(row['rounds']):.1f}) | {base / mean:.1f} |")


def measure_stragglers(given):
    results = {name: [] for name in STRAGGLERS}
    for seed in range(1, given.seeds + 1):
        for name, (partial, proximal) in STRAGGLERS.items():
            rounds = simulate(given, {
                "data": {"name": "synthetic_clients", "alpha": 1, "beta": 1, "clients": 30,
                         "held_out": 0.2, "seed": seed},
                "rounds": 60, "round": {"ask": 10, "use": 10, "least": 1}, "seed": seed,
                "local": {"epochs": 20, "batch_size": 10, "learning_rate": 0.01,
                          "partial": partial, "proximal": proximal},
                "devices": {"stragglers": 0.9}})["rounds"]
            last = [one for one in rounds if not one["abandoned"]][-30:]
            results[name].append({key: statistics.mean(one[key] for one in last)
                                  for key in ("loss", "accuracy")})
            given.json.write_text(json.dumps(results, indent=1) + "\n")
    return results


def print_stragglers(results):
    print("| | loss by seed | accuracy, mean of the seeds |\n| --- | --- | --- |")
    for name, rows in results.items():
        losses = ", ".join(f"{row['loss']:.2f}" for row in rows)
        accuracy = 100 * statistics.mean(row["accuracy"] for row in rows)
        print(f"| {name} | {losses} | {accuracy:.1f} % |")


def ours(given, model, rounds, threads):
    """Without reading the data and without the tests of the model."""
    config = {"model": model, "data": {"name": "fashion_mnist"}, "rounds": rounds,
              "partition": {"kind": "iid", "clients": CLIENTS}, "evaluate_every": rounds + 1,
              "round": {"ask": COHORT, "use": COHORT, "least": COHORT}, "seed": 1,
              "local": {"epochs": 1, "batch_size": BATCH, "learning_rate": 0.03}}
    said = simulate(given, config, "--threads", str(threads))["said"]
    rate = float(re.search(r"([0-9.]+) clients trained per second", said).group(1))
    return {"seconds": COHORT / rate}


def peer(given, way, kind, rounds, processes):
    done = subprocess.run(
        [given.python, HERE / "federated_peer.py", way, kind, str(rounds), str(processes), FOLDER],
        capture_output=True, text=True, timeout=LIMIT_S,
        env=os.environ | {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"})
    rows = re.findall(r"^\{\"seconds\".*\}$", done.stdout, re.MULTILINE)
    if done.returncode != 0 or not rows:
        raise SystemExit(f"{way} failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    found = json.loads(rows[-1])
    return found | {"seconds": statistics.median(found["seconds"])}


def measure_simulators(given):
    """The net with two threads or processes, the CNN with one each, beside its bare loop."""
    ways = {
        "net: gradwire, 2 threads": lambda: ours(given, NET, 100, 2),
        "net: gradwire, 1 thread": lambda: ours(given, NET, 60, 1),
        "net: gradwire.federated, Python": lambda: peer(given, "gradwire", "mlp", 10, 1),
        "net: pfl": lambda: peer(given, "pfl", "mlp", 10, 1),
        "net: Flower, 2 processes": lambda: peer(given, "flower", "mlp", 5, 2),
        "net: steps alone, Python": lambda: peer(given, "loop", "mlp", 10, 1),
        "CNN: gradwire, 1 thread": lambda: ours(given, CNN, 10, 1),
        "CNN: gradwire.federated, Python": lambda: peer(given, "gradwire", "cnn", 5, 1),
        "CNN: pfl": lambda: peer(given, "pfl", "cnn", 5, 1),
        "CNN: Flower, 1 process": lambda: peer(given, "flower", "cnn", 3, 1),
        "CNN: steps alone, Python": lambda: peer(given, "loop", "cnn", 5, 1),
    }
    results = {way: [] for way in ways}
    for turn in range(given.turns):
        for way in ways if turn % 2 == 0 else reversed(ways):
            results[way].append(ways[way]())
            print(f"{way}: {results[way][-1]['seconds']:.3f} s", file=sys.stderr, flush=True)
            given.json.write_text(json.dumps(results, indent=1) + "\n")
    return results


def print_simulators(results):
    print("| | seconds per round, median (least, most) | against the steps alone |\n"
          "| --- | --- | --- |")
    for way, rows in results.items():
        times = [row["seconds"] for row in rows]
        alone = [row["seconds"] for row in results[f"{way.split(':')[0]}: steps alone, Python"]]
        print(f"| {way} | {statistics.median(times):.3f} ({min(times):.3f}, {max(times):.3f}) "
              f"| {statistics.median(times) / statistics.median(alone):.2f} |")


MEASURED = {"rounds": (measure_rounds, print_rounds),
            "stragglers": (measure_stragglers, print_stragglers),
            "simulators": (measure_simulators, print_simulators)}


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("what", choices=MEASURED)
    parser.add_argument("gradwire", type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("json", type=pathlib.Path)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--turns", type=int, default=3)
    given = parser.parse_args()
    measure, show = MEASURED[given.what]
    show(measure(given))


if __name__ == "__main__":
    main()
