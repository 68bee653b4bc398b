#!/usr/bin/env python3
"""Measures gradwire, Gloo and Open MPI in turn on every kind of link, with limits and targets.

usage: results.py --gradwire PATH [--output DIR] [--rounds K] [--only NAME,...] [--list]

Hosts are network namespaces on shaped links (tests/hosts/hosts.sh), which requires root. For each
kind of link `gradwire probe` and `gradwire tune` first measure the tuner's inputs, and `gradwire
bench --compare` does the rest. Writes DIR/results.json after each kind, so that --only can repeat
some of them, and DIR/RESULTS.md; also the README's table and picture if DIR is this folder.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from harness import RSH, Hosts
from result_cases import (COLLECTIVE_LINKS, COLLECTIVE_SIZES, COLLECTIVES, LINKS, TUNER_LINKS,
                          TUNER_SIZES, links_named)
from readme_table import with_table
from results_page import machine, page
from results_plot import picture

# Ranks of several hosts share this machine's cores, so waiting ranks must yield. Shared memory
# would be cheating; Open MPI does not use it between hosts of different names.
MPIRUN = "mpirun --mca btl tcp,self --mca mpi_yield_when_idle 1"
MINUTES = 60

# Maximum size for `gradwire tune`: above it the links dominate, which the cost model knows.
MOST_TUNED = 16 << 20
CHOOSY = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "gather", "scatter",
          "all_to_all")


def busy_cores():
    """Returns the number of cores that other processes keep busy, over a second."""
    def used():
        fields = [int(word) for word in open("/proc/stat").readline().split()[1:9]]
        return sum(fields) - fields[3] - fields[4]  # Neither idle nor in I/O wait.
    before = used()
    time.sleep(1)
    return (used() - before) / os.sysconf("SC_CLK_TCK")


class Place:
    """Where commands run: on the first of the hosts, or on this machine."""

    def __init__(self, links, gradwire):
        self.links, self.gradwire, self.hosts, self.topology = links, gradwire, None, None

    def __enter__(self):
        if self.links.hosts:
            self.hosts = Hosts(self.links.hosts, self.links.rate, self.links.nics)
            self.hosts.__enter__()
            for slower in self.links.slower:
                self.hosts.script("rate", *slower)
        return self

    def __exit__(self, *exception):
        if self.hosts:
            self.hosts.__exit__(*exception)

    def where(self):
        if not self.hosts:
            return ["-n", self.links.ranks]
        return ["--hosts", ",".join(self.hosts.names), "--rsh", RSH,
                "--interface", self.links.interfaces]

    def run(self, *arguments, minutes=30):
        command = [str(word) for word in (self.gradwire, *arguments)]
        environment = {"GRADWIRE_TOPOLOGY": str(self.topology)} if self.topology else {}
        if self.hosts:
            process = self.hosts.start(0, command, environment)
            status, output = process.wait(minutes * MINUTES), process.output()
        else:
            done = subprocess.run(command, text=True, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  env={**os.environ, **environment}, timeout=minutes * MINUTES)
            status, output = done.returncode, done.stdout
        if status != 0:
            raise SystemExit(f"{' '.join(command)} ended with {status}:\n{output}")
        return output

    def learn(self, folder, collectives, sizes):
        """Probes the links and tunes the algorithms, as a user would on a cluster."""
        path = pathlib.Path(folder) / "topology.json"
        self.run("probe", *self.where(), "--output", path, minutes=10)
        tuned = [str(size) for size in sizes if size <= MOST_TUNED]
        choosy = [name for name in collectives if name in CHOOSY]
        if tuned and choosy:
            print(self.run("tune", *self.where(), "--topology", path, "--collectives",
                           ",".join(choosy), "--sizes", ",".join(tuned)), flush=True)
        self.topology = path

    def bench(self, collective, sizes, peers=(), rounds=1, seconds=1, more=()):
        """Returns the rows of `gradwire bench`'s JSON."""
        with tempfile.TemporaryDirectory(prefix="gradwire-results-") as folder:
            report = pathlib.Path(folder) / "rows.json"
            options = ["--sizes", ",".join(map(str, sizes)), "--seconds", seconds,
                       "--json", report, *more]
            if peers:
                options += ["--compare", ",".join(peers), "--rounds", rounds,
                            "--python", sys.executable]
            if peers and self.hosts:
                options += ["--mpirun", MPIRUN]
            print(self.run("bench", collective, *self.where(), *options), flush=True)
            return json.loads(report.read_text())["rows"]


def measure(links, arguments):
    busy = busy_cores()
    with Place(links, arguments.gradwire) as place, tempfile.TemporaryDirectory() as folder:
        if not arguments.no_probe and links.peers:
            place.learn(folder, ["all_reduce"], links.sizes)
        return {"busy": busy, "rows": place.bench("all_reduce", links.sizes, links.peers,
                                                  arguments.rounds, arguments.seconds)}


def measure_collectives(arguments):
    """Measures every collective, with Gloo in turn."""
    busy, rows = busy_cores(), []
    with Place(links_named(COLLECTIVE_LINKS), arguments.gradwire) as place, \
            tempfile.TemporaryDirectory() as folder:
        if not arguments.no_probe:
            place.learn(folder, COLLECTIVES, COLLECTIVE_SIZES)
        for collective in COLLECTIVES:
            rows += place.bench(collective, COLLECTIVE_SIZES, ("gloo",), 1, arguments.seconds / 2)
    return {"busy": busy, "rows": rows}


def measure_tuner(arguments):
    """Measures the tuner's choice and every algorithm, in turn."""
    busy, rows = busy_cores(), []
    for name in TUNER_LINKS:
        with Place(links_named(name), arguments.gradwire) as place, \
                tempfile.TemporaryDirectory() as folder:
            if not arguments.no_probe:
                place.learn(folder, ["all_reduce"], TUNER_SIZES)
            for _ in range(arguments.rounds):
                for what in ("tuner", "all"):
                    more = ["--algorithm", "all"] if what == "all" else []
                    measured = place.bench("all_reduce", TUNER_SIZES, more=more,
                                           seconds=arguments.seconds / 4)
                    rows += [{**row, "links": name, "what": what} for row in measured]
    return {"busy": busy, "rows": rows}


BENCH = pathlib.Path(__file__).resolve().parent
WHOLE = {"collectives": measure_collectives, "tuner": measure_tuner}


def parse():
    names = [links.name for links in LINKS] + list(WHOLE)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gradwire", type=pathlib.Path)
    parser.add_argument("--output", type=pathlib.Path, default=BENCH)
    parser.add_argument("--rounds", type=int, default=3, help="rounds in which all take turns")
    parser.add_argument("--seconds", type=float, default=1, help="per size and round")
    parser.add_argument("--only", default=",".join(names), help=f"of these: {', '.join(names)}")
    parser.add_argument("--no-probe", action="store_true",
                        help="no probe: the tuner assumes 1 Gb/s links")
    parser.add_argument("--page", action="store_true", help="only rewrite the documents")
    arguments = parser.parse_args()
    arguments.names = [] if arguments.page else arguments.only.split(",")
    unknown = set(arguments.names) - set(names)
    if unknown:
        parser.error(f"no links are called {', '.join(unknown)}; there are {', '.join(names)}")
    if arguments.names and not arguments.gradwire:
        parser.error("--gradwire PATH: which program?")
    return arguments


def main():
    arguments = parse()
    arguments.output.mkdir(parents=True, exist_ok=True)
    stored = arguments.output / "results.json"
    results = json.loads(stored.read_text()) if stored.exists() else {"links": {}}
    for name in arguments.names:
        print(f"== {name}", flush=True)
        if name in WHOLE:
            measured = WHOLE[name](arguments)
        else:
            measured = measure(links_named(name), arguments)
        results["machine"] = machine()
        results["links"][name] = {**measured, "rounds": arguments.rounds}
        stored.write_text(json.dumps(results, indent=1) + "\n")
    (arguments.output / "RESULTS.md").write_text(page(results, arguments.output))
    if arguments.output.resolve() == BENCH:
        readme = BENCH.parent / "README.md"
        readme.write_text(with_table(readme.read_text(), results))
        (BENCH.parent / "docs" / "busbw.svg").write_text(picture(results))


if __name__ == "__main__":
    main()
