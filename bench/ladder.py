"""The Ethernet ladder: runs `gradwire bench step --ladder --compare ddp` on one network after the
other. Each has four hosts, which are network namespaces (tests/hosts/hosts.sh), so it requires
root. Writes the tables, the rows as JSON and a plot for each network.

usage: ladder.py GRADWIRE FOLDER [--python P] [--rounds K] [--seconds S] [--network NAME]...
"""

import argparse
import json
import pathlib
import subprocess
import sys
from typing import NamedTuple

HOSTS = pathlib.Path(__file__).resolve().parent.parent / "tests/hosts/hosts.sh"
PREFIX = "ladder"
COUNT = 4


class Network(NamedTuple):
    """`rate`: of tc; `limit`: the part of it that TCP can carry (95.6 %). Compute takes `dilation`
    times as long, because the real network is faster by that factor."""
    name: str
    rate: str
    limit: str
    dilation: float
    about: str


NETWORKS = [
    Network("10GbE", "2.5gbit", "2.39Gb/s", 4, "10 GbE (2.5 Gb/s, time x 4)"),
    Network("2.5GbE", "1gbit", "956Mb/s", 2.5, "2.5 GbE (1 Gb/s, time x 2.5)"),
    Network("1GbE", "250mbit", "239Mb/s", 4, "1 GbE (250 Mb/s, time x 4)"),
    Network("1GbE-live", "1gbit", "956Mb/s", 1, "1 GbE, not dilated"),
    Network("100M", "50mbit", "47.8Mb/s", 2, "100 Mb/s (50 Mb/s, time x 2)"),
]
COMPUTE_MS = 234  # Time of a ResNet-50 step.


def measure(gradwire, folder, network, options):
    """Runs the ladder on one network, with output to standard output."""
    subprocess.run([HOSTS, PREFIX, "up", str(COUNT), network.rate], check=True,
                   stdout=subprocess.DEVNULL)
    try:
        report = folder / f"{network.name}.json"
        subprocess.run(
            [gradwire, "bench", "step", "--ladder", "--profile", "resnet50", "--compute-ms",
             str(COMPUTE_MS * network.dilation), "--limit", network.limit, "--compare", "ddp",
             "--hosts", ",".join(f"{PREFIX}-h{i}" for i in range(COUNT)), "--rsh", "ip netns exec",
             "--master-addr", "10.77.0.1", "--interface", "gw0", "--json", report, "--plot",
             folder / f"{network.name}.svg", *options], check=True)
        return json.loads(report.read_text())["rows"]
    finally:
        subprocess.run([HOSTS, PREFIX, "down"], check=True)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("gradwire", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--rounds", default="3")
    parser.add_argument("--seconds", default="10")
    parser.add_argument("--network", action="append", choices=[n.name for n in NETWORKS])
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    options = ["--python", given.python, "--rounds", given.rounds, "--seconds", given.seconds]
    results = {}
    for network in NETWORKS:
        if given.network and network.name not in given.network:
            continue
        print(f"\n# {network.about}", flush=True)
        results[network.name] = measure(given.gradwire.resolve(), given.folder, network, options)
    (given.folder / "ladder.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
