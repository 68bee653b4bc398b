#!/usr/bin/env python3
"""ZeRO's stages compared with the peers: a GPT of 20 million parameters in float32 with Adam, batch
4 x 128 per rank, on four hosts that are network namespaces (tests/hosts/hosts.sh), so it requires
root. Prints one table for each rate, of medians over rounds, and writes the rounds as JSON. A
round has the median step time (of the peers' slowest rank; for gradwire of rank 0, with which the
others are in step; the fastest and the slowest round are in brackets), the bytes that a rank sends
per step (payload for gradwire; the peers' figure is the interface's and includes headers, a
twentieth), and the peak resident memory of any rank.

usage: zero.py GRADWIRE JSON [--python P] [--rate RATE]... [--rounds K] [--steps S] [--way WAY]...
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
HOSTS = HERE.parent / "tests/hosts/hosts.sh"
PREFIX = "zerob"
COUNT = 4
BATCH = 4
CONTEXT = 128
LIMIT_S = 600
WARM_UP = 2  # Steps before the measured ones, as in zero_peer.py.
OURS = {"gradwire DDP": 0, "gradwire ZeRO-1": 1, "gradwire ZeRO-2": 2, "gradwire ZeRO-3": 3}
PEERS = {"PyTorch DDP": "ddp", "ZeroRedundancyOptimizer": "zero_redundancy", "FSDP2": "fsdp2"}

# zero_peer.py has the same model.
CONFIG = {
    "model": {"name": "gpt", "width": 384, "layers": 11, "heads": 6},
    "optimizer": {"name": "adam", "learning_rate": 0.0003},
    "epochs": 1, "batch_size": COUNT * BATCH, "checkpoint": "",
}


def launch(gradwire, program):
    hosts = ",".join(f"{PREFIX}-h{i}" for i in range(COUNT))
    return subprocess.run(
        [gradwire, "run", "--hosts", hosts, "--rsh", "ip netns exec", "--master-addr", "10.77.0.1",
         "--interface", "gw0", "--env", "OMP_NUM_THREADS=1", "--", *map(str, program)],
        check=True, stdout=subprocess.PIPE, text=True, timeout=LIMIT_S).stdout


def ours(gradwire, stage, steps, text):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        data = {"name": "text", "context": CONTEXT, "path": str(text),
                "limit": (WARM_UP + steps) * COUNT * BATCH}
        (folder / "gpt.json").write_text(
            json.dumps({**CONFIG, "data": data, "zero": {"stage": stage}}))
        launch(gradwire, [gradwire, "train", folder / "gpt.json", "--output", folder, "--json",
                          folder / "summary.json"])
        summary = json.loads((folder / "summary.json").read_text())
        parts = json.loads((folder / "run.json").read_text())["steps"]
    times = [sum(step) for step in
             zip(parts["data_s"], parts["compute_s"], parts["exposed_s"])]
    return {"step_ms": 1e3 * statistics.median(times[WARM_UP:]),
            "sent_mb": summary["sent_bytes_per_step"] / 1e6,
            "peak_mib": summary["resident_peak_bytes"] / 2**20}


def peer(gradwire, python, way, steps):
    out = launch(gradwire, [python, HERE / "zero_peer.py", way, steps])
    return json.loads(out.splitlines()[-1].split("] ", 1)[-1])


def write_text(path, steps):
    """Writes varied text; step time does not depend on its content. It is hardly longer than
    needed, because a tenth of it is the test set."""
    length = 2 * (WARM_UP + steps) * COUNT * BATCH * CONTEXT
    path.write_bytes(bytes((i * i // 7 + i // 64) % 96 + 32 for i in range(length)))


def measure(given, text):
    """Runs all ways in turn, round after round. Every other round is in reverse order, because the
    position may affect the result."""
    ways = given.way or [*OURS, *PEERS]
    results = {way: [] for way in ways}
    for turn in range(given.rounds):
        for way in ways if turn % 2 == 0 else reversed(ways):
            results[way].append(ours(given.gradwire, OURS[way], given.steps, text) if way in OURS
                                else peer(given.gradwire, given.python, PEERS[way], given.steps))
            print(f"{way}: {results[way][-1]['step_ms']:.0f} ms", file=sys.stderr, flush=True)
    return results


def median(rows, key):
    return statistics.median(row[key] for row in rows)


def print_table(rate, results):
    print(f"\n{rate}\n| | step, ms | sent, MB | peak, MiB |\n| --- | --- | --- | --- |")
    for way, rows in results.items():
        times = [row["step_ms"] for row in rows]
        print(f"| {way} | {statistics.median(times):,.0f} ({min(times):,.0f}, {max(times):,.0f}) "
              f"| {median(rows, 'sent_mb'):.1f} | {median(rows, 'peak_mib'):,.0f} |")


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("gradwire", type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("json", type=pathlib.Path)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--rate", action="append")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--way", action="append", choices=[*OURS, *PEERS])
    given = parser.parse_args()
    tables = {}
    with tempfile.TemporaryDirectory() as folder:
        text = pathlib.Path(folder) / "text"
        write_text(text, given.steps)
        for rate in given.rate or ["2.5gbit", "1gbit"]:
            subprocess.run([HOSTS, PREFIX, "up", str(COUNT), rate], check=True,
                           stdout=subprocess.DEVNULL)
            try:
                tables[rate] = measure(given, text)
            finally:
                subprocess.run([HOSTS, PREFIX, "down"], check=True)
            print_table(rate, tables[rate])
    given.json.write_text(json.dumps(tables, indent=1) + "\n")


if __name__ == "__main__":
    main()
