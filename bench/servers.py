#!/usr/bin/env python3
"""One parameter server and four workers, compared with the peers: a server over PyTorch's RPC and a
star over Gloo (server_peer.py). Gradients of 16 MB, compute that waits, five hosts that are network
namespaces (tests/hosts/hosts.sh), so it requires root. The ways run in turn, round after round.
Prints a table of medians over rounds, the fastest and the slowest round in brackets, and writes the
rounds as JSON. A step is the mean over the workers; sent is what a worker's interface sends, or of
gradwire the payload.

usage: servers.py GRADWIRE JSON [--python P] [--rate RATE] [--rounds K] [--steps S] [--way WAY]...
"""

import argparse
import json
import pathlib
import re
import statistics
import sys
import tempfile

from harness import RSH, Hosts

HERE = pathlib.Path(__file__).resolve().parent
WORKERS, TENSORS, BYTES, COMPUTE_MS = 4, 16, 1_000_000, 50
LIMIT_S = 300
OURS = {"gradwire, sync": ("sync", "full"),
        "gradwire, sync, no overlap": ("sync", "none"),
        "gradwire, async": ("async", "full")}
PEERS = {"PyTorch RPC, sync": ("rpc", "sync"),
         "Gloo star, sync": ("gloo", "sync"),
         "PyTorch RPC, async": ("rpc", "async")}


def finished(job):
    if job.wait(LIMIT_S) != 0:
        raise SystemExit(f"{job.name} failed:\n{job.output()}")
    return job.output()


def ours(hosts, given, mode, overlap):
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "rows.json"
        finished(hosts.start(0, [
            given.gradwire, "bench", "step", "--hosts", ",".join(hosts.names), "--rsh", RSH,
            "--interface", "gw0", "--profile", f"uniform:{TENSORS}x{BYTES}", "--compute-ms",
            COMPUTE_MS, "--servers", "1", "--mode", mode, "--overlap", overlap, "--steps",
            given.steps, "--json", report]))
        row, = json.loads(report.read_text())["rows"]
    return {"step_ms": row["step_ms"], "sent_mb": row["bytes_per_step"] / 1e6,
            "staleness": row["staleness_mean"]}


def peer(hosts, given, way, mode):
    job = hosts.launch(given.gradwire, ["--interface", "gw0", "--env", "OMP_NUM_THREADS=1"],
                       [given.python, HERE / "server_peer.py", way, mode, TENSORS, BYTES,
                        COMPUTE_MS, given.steps])
    said = [json.loads(text) for text in re.findall(r"\{\".*\}", finished(job))]
    rows = [line for line in said if "worker" in line]
    if len(rows) != WORKERS:
        raise SystemExit(f"{way} {mode}: {len(rows)} of {WORKERS} workers said their times")
    staleness = [line["staleness"] for line in said if "staleness" in line] or [0]
    return {"step_ms": statistics.mean(row["step_ms"] for row in rows),
            "sent_mb": statistics.mean(row["sent_mb"] for row in rows), "staleness": staleness[0]}


def measure(hosts, given):
    """Every other round is in reverse order, because the position may affect the result."""
    ways = given.way or [*OURS, *PEERS]
    results = {way: [] for way in ways}
    for turn in range(given.rounds):
        for way in ways if turn % 2 == 0 else reversed(ways):
            row = ours(hosts, given, *OURS[way]) if way in OURS else peer(hosts, given, *PEERS[way])
            results[way].append(row)
            print(f"{way}: {row['step_ms']:.0f} ms", file=sys.stderr, flush=True)
    return results


def print_table(results):
    print("| | step, ms | gradients a second | sent by a worker, MB | mean staleness |\n"
          "| --- | --- | --- | --- | --- |")
    for way, rows in results.items():
        times = [row["step_ms"] for row in rows]
        step = statistics.median(times)
        sent, staleness = (statistics.median(row[key] for row in rows)
                           for key in ("sent_mb", "staleness"))
        print(f"| {way} | {step:.0f} ({min(times):.0f}, {max(times):.0f}) "
              f"| {WORKERS * 1e3 / step:.1f} | {sent:.1f} | {staleness:.2f} |")


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("gradwire", type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("json", type=pathlib.Path)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--way", action="append", choices=[*OURS, *PEERS])
    given = parser.parse_args()
    with Hosts(WORKERS + 1, given.rate) as hosts:
        results = measure(hosts, given)
    print_table(results)
    given.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
