#!/usr/bin/env python3
"""Compares the predictions of `gradwire plan simulate` with measurements of `gradwire bench`.

usage: calibration.py --gradwire PATH [--output DIR] [--page FILE] [--only TEXT] [--again TEXT]
                      [--anew] [--seconds S] [--reprice] [--list]

Networks are sets of network namespaces on shaped links (tests/hosts/hosts.sh), which requires root.
For each network, `gradwire probe` first measures the links and `gradwire bench codec` the coding
speed of this machine. Predictions are made from these alone and written to DIR/calibration.json;
only then are the cases measured. Measurements are kept: a second call continues, and --again
repeats those whose names contain a text. --seconds is the time limit, checked between two
measurements. The page (docs/accuracy.md) and its plot are written from the file. --reprice predicts
the recorded cases with the present planner and prints both predictions' errors; it measures nothing
and changes no file.
"""

import argparse
import json
import pathlib
import shlex
import subprocess
import sys
import time

from calibration_cases import GRID, Operation, count
from calibration_page import results as results_of, summary, write_page

HERE = pathlib.Path(__file__).resolve().parent
HOSTS = HERE.parent / "tests/hosts/hosts.sh"
PREFIX = "calib"
CODECS = ["bf16", "int8", "int4", "top_k:0.01"]
RSH = ["--rsh", "ip netns exec", "--master-addr", "10.77.0.1", "--interface", "gw0"]


class Calibration:
    def __init__(self, options):
        self.options = options
        self.folder = options.output
        self.file = self.folder / "calibration.json"
        known = self.file.exists() and not options.anew
        self.known = json.loads(self.file.read_text()) if known else {}
        self.deadline = time.monotonic() + options.seconds

    def save(self):
        whole = json.dumps(self.known, indent=1) + "\n"
        part = self.file.with_suffix(".part")
        part.write_text(whole)
        part.replace(self.file)

    def late(self):
        return time.monotonic() > self.deadline

    def run(self, words, **options):
        return subprocess.run([str(word) for word in words], check=True, text=True,
                              stdout=subprocess.PIPE, **options).stdout

    def file_of(self, name, text):
        """Writes the text to a file, for a program's command line."""
        path = self.folder / f".calibration-{name}"
        path.write_text(text)
        return path

    def codec_speeds(self):
        if "codecs" not in self.known:
            rows = self.run([self.options.gradwire, "bench", "codec", *CODECS, "--size", "4M",
                             "--json", "-"])
            self.known["codecs"] = json.loads(rows)
            self.save()
        return self.file_of("codecs.json", json.dumps(self.known["codecs"]))

    def topology(self, network, hosts):
        entry = self.known.setdefault("networks", {}).setdefault(network.name, {})
        path = self.folder / ".calibration-topology.json"
        if "topology" not in entry:
            self.run([self.options.gradwire, "probe", *hosts, "--output", path])
            entry["topology"] = json.loads(path.read_text())
            self.save()
        return self.file_of("topology.json", json.dumps(entry["topology"]))

    def predict(self, case, topology):
        words = [*shlex.split(self.options.planner), "--topology", topology, "--json", "-",
                 "--algorithm", case.algorithm]
        if isinstance(case, Operation):
            words += ["--collective", case.collective, "--bytes", case.size]
            return 1e-3 * json.loads(self.run(words))["time_us"]
        words += [*step_words(case), "--codec-speeds", self.codec_speeds()]
        return json.loads(self.run(words))["step_ms"]

    def measure(self, case, hosts, topology):
        bench = [self.options.gradwire, "bench"]
        environment = ["--env", f"GRADWIRE_TOPOLOGY={topology}"]
        if isinstance(case, Operation):
            out = self.run([*bench, case.collective, "--algorithm", case.algorithm, "--sizes",
                            case.size, "--seconds", "1", "--json", "-", *hosts, *environment])
            return 1e-3 * json.loads(out)["rows"][0]["median_us"]
        if case.algorithm != "auto":
            environment += ["--env", f"GRADWIRE_ALGORITHM=all_reduce={case.algorithm}"]
        out = self.run([*bench, "step", *step_words(case), "--seconds", "4", "--warmup", "2",
                        "--json", "-", *hosts, *environment])
        return json.loads(out)["rows"][0]["step_ms"]

    def wanted(self, network, case):
        entry = self.known.get("networks", {}).get(network.name, {}).get("cases", {})
        name = f"{network.name}: {case.name()}"
        if self.options.only and self.options.only not in name:
            return False
        if self.options.again and self.options.again in name:
            return True
        return "measured_ms" not in entry.get(case.name(), {})

    def calibrate(self, network, cases):
        cases = [case for case in cases if self.wanted(network, case)]
        if not cases or self.late():
            return
        self.run([HOSTS, PREFIX, "up", network.hosts, network.rate])
        try:
            for host, rate in network.slower:
                self.run([HOSTS, PREFIX, "rate", rate, host])
            names = ",".join(f"{PREFIX}-h{i}" for i in range(network.hosts))
            hosts = ["--hosts", names, *RSH]
            topology = self.topology(network, hosts)
            results = self.known["networks"][network.name].setdefault("cases", {})
            for case in cases:
                results[case.name()] = {"predicted_ms": self.predict(case, topology)}
            self.save()
            for case in cases:
                if self.late():
                    return
                entry = results[case.name()]
                entry["measured_ms"] = self.measure(case, hosts, topology)
                self.save()
                print(line_of(network, case, entry), flush=True)
        finally:
            self.run([HOSTS, PREFIX, "down"])

    def reprice(self):
        """Predicts all measured cases with the current planner; keeps the recorded predictions."""
        repriced = {"networks": {}}
        for network, cases in GRID.items():
            entry = self.known.get("networks", {}).get(network.name, {})
            if "topology" not in entry:
                continue
            topology = self.topology(network, [])
            results = repriced["networks"].setdefault(network.name, {"cases": {}})["cases"]
            for case in cases:
                known = entry.get("cases", {}).get(case.name(), {})
                if "measured_ms" not in known:
                    continue
                results[case.name()] = {**known, "predicted_ms": self.predict(case, topology)}
                print(line_of(network, case, results[case.name()]))
        for name, known in (("recorded", self.known), ("repriced", repriced)):
            print(f"\n{name} predictions\n{summary(results_of(known))}")


def step_words(case):
    return ["--profile", case.profile, "--compute-ms", case.compute_ms, "--codec", case.codec,
            "--overlap", case.overlap, "--accumulate", case.accumulate, "--local-steps",
            case.local_steps, "--fragments", case.fragments, "--overlap-steps", case.overlap_steps]


def line_of(network, case, entry):
    error = entry["predicted_ms"] / entry["measured_ms"] - 1
    return (f"{network.name:26} {case.name():44} {entry['predicted_ms']:9.2f} "
            f"{entry['measured_ms']:9.2f} ms {100 * error:+6.1f} %")


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--gradwire", type=pathlib.Path, required=True)
    parser.add_argument("--planner", help="default: GRADWIRE plan simulate")
    parser.add_argument("--output", type=pathlib.Path, default=HERE)
    parser.add_argument("--page", type=pathlib.Path, default=HERE.parent / "docs/accuracy.md")
    parser.add_argument("--only", help="only networks and cases whose names contain this")
    parser.add_argument("--again", help="repeats measurements whose names contain this")
    parser.add_argument("--anew", action="store_true", help="discards all measurements")
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--reprice", action="store_true",
                        help="compares the planner with the recorded measurements")
    options = parser.parse_args()
    options.gradwire = options.gradwire.resolve()
    options.planner = options.planner or f"{options.gradwire} plan simulate"
    if options.list:
        for network, cases in GRID.items():
            for case in cases:
                print(f"{network.name}: {case.name()}")
        print(f"{count()} configurations")
        return 0
    options.output.mkdir(parents=True, exist_ok=True)
    calibration = Calibration(options)
    calibration.codec_speeds()
    if options.reprice:
        calibration.reprice()
    else:
        for network, cases in GRID.items():
            calibration.calibrate(network, cases)
    for left in options.output.glob(".calibration-*"):
        left.unlink()
    if not options.reprice:
        write_page(calibration.known, options.page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
