#!/usr/bin/env python3
"""All-reduce between hosts on shaped links: gradwire and Gloo in turn, beside the wire's limit.

usage: all_reduce.py --gradwire PATH [--output DIR] [--rounds K] [--no-gloo]

Each round starts both once, one after the other, so that what else the machine does meets both. The
figures are medians over the rounds of each run's median, with the lowest and highest beside them.
Needs root, for network namespaces. Writes DIR/all_reduce.json and prints a table.
"""

import argparse
import json
import os
import pathlib
import statistics
import sys

from harness import Hosts

HERE = pathlib.Path(__file__).resolve().parent
HOSTS = 4

# (bytes, rate of the links in Gb/s, iterations a run)
CASES = [(4, 1.0, 1000), (4096, 1.0, 1000), (65536, 1.0, 200), (1 << 20, 1.0, 50),
         (100_000_000, 1.0, 3), (100_000_000, 2.5, 5)]

# tbf counts 14 bytes of Ethernet header a packet; TCP's and IP's headers with timestamps are 52 of
# the 1,500 bytes: the best that plain TCP can carry of the configured rate.
LIMIT = (1500 - 52) / (1500 + 14)


def run_gradwire(hosts, arguments, size, iterations):
    result = pathlib.Path(arguments.output) / "run.json"
    result.unlink(missing_ok=True)
    ranks = hosts.start_ranks([arguments.gradwire, "bench", "all_reduce", "--sizes", size,
                               "--iterations", iterations, "--json", result])
    for rank in ranks:
        if rank.wait(300) != 0:
            raise SystemExit(rank.output())
    row = json.loads(result.read_text())["rows"][0]
    if row["wrong"]:
        raise SystemExit(f"{row['wrong']} elements are wrong")
    return row["median_us"]


def run_gloo(hosts, _, size, iterations):
    ranks = hosts.start_ranks([sys.executable, HERE / "gloo_all_reduce.py", size, iterations],
                              {"GLOO_SOCKET_IFNAME": "gw0", "OMP_NUM_THREADS": "1"})
    for rank in ranks:
        if rank.wait(300) != 0:
            raise SystemExit(rank.output())
    return json.loads(ranks[0].output().splitlines()[-1])["median_us"]


def bus_share(size, rate_gbps, median_us):
    """busbw, as nccl-tests defines it, as a share of the links' rate."""
    return size * 8e-3 / median_us * 2 * (HOSTS - 1) / HOSTS / rate_gbps


def measure(arguments, size, rate, iterations):
    systems = {"gradwire": run_gradwire}
    if not arguments.no_gloo:
        systems["gloo"] = run_gloo
    times = {name: [] for name in systems}
    with Hosts(HOSTS, f"{rate * 1000:.0f}mbit") as hosts:
        for _ in range(arguments.rounds):
            for name, run in systems.items():
                times[name].append(run(hosts, arguments, size, iterations))
    row = {"bytes": size, "rate_gbps": rate, "ranks": HOSTS}
    for name, values in times.items():
        median = statistics.median(values)
        row[name] = {"median_us": median, "lowest_us": min(values), "highest_us": max(values),
                     "share": bus_share(size, rate, median)}
    return row


def line(row):
    text = f"{row['bytes']:>11} {row['rate_gbps']:>5.1f}"
    for name in ("gradwire", "gloo"):
        if name in row:
            r = row[name]
            text += (f" {r['median_us']:>12.1f} ({r['lowest_us']:.0f}-{r['highest_us']:.0f})"
                     f" {100 * r['share']:>5.1f} %")
    if "gloo" in row:
        text += f" {row['gloo']['median_us'] / row['gradwire']['median_us']:>7.2f}"
    return text


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gradwire", type=pathlib.Path, required=True)
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("."))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-gloo", action="store_true")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    print(f"# {HOSTS} hosts, MTU 1500; load of the machine {os.getloadavg()[0]:.1f}; "
          f"plain TCP can carry {100 * LIMIT:.1f} % of the rate\n"
          "# median us (lowest-highest), busbw as a share of the rate; last: Gloo's time by ours\n"
          f"{'bytes':>11} {'Gb/s':>5} {'gradwire':>20} {'gloo':>24}", flush=True)
    rows = []
    for size, rate, iterations in CASES:
        rows.append(measure(arguments, size, rate, iterations))
        print(line(rows[-1]), flush=True)
    (arguments.output / "all_reduce.json").write_text(json.dumps({"rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
