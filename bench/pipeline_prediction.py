#!/usr/bin/env python3
"""Compares predicted steps of pipelines with runs between hosts, for docs/pipeline.md.

usage: pipeline_prediction.py GRADWIRE [--rounds K] [--gain] [--json FILE]

Hosts are four network namespaces on shaped links (tests/hosts/hosts.sh), which requires root.
Compute is emulated, messages are sent. Each rate and schedule is measured in each round. The table
has the medians, beside what `gradwire schedule` predicts from the name of the network alone
(planned), and from the transfer times measured before the run (simulated). With --gain it measures
two replicas of two stages instead, with and without priority of messages between stages over sums
of gradients. On a busy machine, start it with real-time priority: chrt -r 1.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests/hosts"))
from harness import RSH, Hosts  # noqa: E402

RATES = {"1gbit": "1Gb/s", "500mbit": "500Mb/s"}
SCHEDULES = ["gpipe", "1f1b", "zero_bubble", "zero_bubble:12"]
IDEAL_MS = 960
# Sums of a stage's gradients after each step, and after each micro-batch.
SUMS = {"each step, 32 MiB": ["--gradient-bytes", "32M"],
        "each micro-batch, 3 MiB": ["--gradient-bytes", "3M", "--each-micro-batch"]}


def bench(gradwire, hosts, *options):
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "rows.json"
        job = hosts.start(0, [gradwire, "bench", "pipeline", "--micro-batches", "16",
                              "--message-bytes", "1M", "--steps", "8", *options, "--hosts",
                              ",".join(hosts.names), "--rsh", RSH, "--interface", "gw0",
                              "--json", report])
        if job.wait(300) != 0:
            sys.exit(job.output())
        return json.loads(report.read_text())["rows"]


def planned_ms(gradwire, schedule, network):
    said = subprocess.run(
        [gradwire, "schedule", schedule, "--stages", "4", "--micro-batches", "16", "--compute",
         "20,20,20ms", "--message", "1M", "--network", network, "--steps", "11"],
        check=True, text=True, stdout=subprocess.PIPE).stdout
    return float(re.search(r"^step +([\d.]+) ms", said, re.MULTILINE).group(1))


def idle(step_ms):
    return 100 * (1 - IDEAL_MS / step_ms)


def predictions(gradwire, hosts, rounds):
    """Returns {(rate, schedule): [rows]}."""
    found = {}
    for number in range(rounds):
        for rate in RATES:
            hosts.script("rate", rate)
            for row in bench(gradwire, hosts, "--schedule", ",".join(SCHEDULES)):
                found.setdefault((rate, row["schedule"]), []).append(row)
            print(f"# round {number + 1} of {rounds}, {rate}: load {os.getloadavg()[0]:.1f}",
                  file=sys.stderr, flush=True)
    return found


def prediction_table(gradwire, found):
    print("| rate | schedule | run | least to greatest | planned | error | simulated | error | "
          "idle: run, simulated |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for (rate, schedule), rows in found.items():
        steps = [row["step_ms"] for row in rows]
        run = statistics.median(steps)
        simulated = statistics.median(row["predicted_ms"] for row in rows)
        planned = planned_ms(gradwire, schedule, RATES[rate])
        print(f"| {RATES[rate]} | `{schedule}` | {run:,.0f} ms | {min(steps):,.0f} to "
              f"{max(steps):,.0f} | {planned:,.0f} ms | {100 * (planned / run - 1):+.1f} % | "
              f"{simulated:,.0f} ms | {100 * (simulated / run - 1):+.1f} % | {idle(run):.1f} %, "
              f"{idle(simulated):.1f} % |")


def gains(gradwire, hosts, rounds):
    """Returns {(sums, schedule): [ratios]} and prints the table."""
    found = {}
    for number in range(rounds):
        for name, options in SUMS.items():
            for priority in ("with", "without"):
                flag = [] if priority == "with" else ["--equal-priority"]
                for row in bench(gradwire, hosts, "--replicas", "2", "--schedule",
                                 "1f1b:2,zero_bubble", *options, *flag):
                    key = (name, row["schedule"])
                    found.setdefault(key, {}).setdefault(priority, []).append(row["step_ms"])
        print(f"# round {number + 1} of {rounds}: load {os.getloadavg()[0]:.1f}", file=sys.stderr,
              flush=True)
    print("| sums of gradients | schedule | without priority | with priority | ratio |\n"
          "| --- | --- | --- | --- | --- |")
    for (name, schedule), steps in found.items():
        equal, first = (statistics.median(steps[p]) for p in ("without", "with"))
        print(f"| {name} | `{schedule}` | {equal:,.0f} ms | {first:,.0f} ms | "
              f"{first / equal:.3f} |")
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("gradwire")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--gain", action="store_true")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    with Hosts(4, "1gbit") as hosts:
        if options.gain:
            found = gains(options.gradwire, hosts, options.rounds)
        else:
            found = predictions(options.gradwire, hosts, options.rounds)
            prediction_table(options.gradwire, found)
    if options.json:
        rows = [{"case": list(case), "figures": figures} for case, figures in found.items()]
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
