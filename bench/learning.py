#!/usr/bin/env python3
"""Trains two models with every codec and with local steps, for comparison with float32.

    bench/learning.py [--gradwire build/bin/gradwire] [--seeds 5] [--only fp32,int8] [--models text]

For each model, variant and seed it runs `gradwire train` on four ranks of this machine, and stores
each result in bench/learning.json. Runs that are stored there are not repeated unless their
configuration has changed. Then it writes the tables into docs/compression.md.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from learning_cases import MODELS, VARIANTS
from learning_page import tables

ROOT = pathlib.Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- bench/learning.py writes from here -->", "<!-- to here -->"
JARGON = "usr/share/dictd/jargon.dict.dz"
PACKAGE = "dict-jargon"


def jargon_file(folder):
    """Returns the text's path: Debian's, or extracted from the package, which would install a
    server."""
    for candidate in (pathlib.Path("/") / JARGON, folder / JARGON):
        if candidate.exists():
            return candidate
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["apt-get", "download", PACKAGE], cwd=folder, check=True,
                   stdout=subprocess.DEVNULL)
    package = next(folder.glob(f"{PACKAGE}_*.deb"))
    subprocess.run(["dpkg-deb", "-x", package, folder], check=True)
    return folder / JARGON


def configuration(model, variant):
    return {**model.config, **variant.settings}


class Store:
    """Stored results, in a file."""

    def __init__(self, path):
        self.path = path
        self.content = {"runs": []}
        if path.exists():
            self.content = json.loads(path.read_text())

    def runs(self, model, variant, ranks):
        """Returns runs whose configuration is the current one."""
        config = configuration(model, variant)
        return [run for run in self.content["runs"]
                if (run["model"], run["variant"], run["ranks"]) == (model.name, variant.name, ranks)
                and run["config"] == config]

    def add(self, run):
        """Adds a run, replacing an older run of the same case."""
        def same(other):
            return all(other[key] == run[key] for key in ("model", "variant", "ranks", "seed"))
        self.content["runs"] = [other for other in self.content["runs"] if not same(other)] + [run]
        self.path.write_text(json.dumps(self.content, indent=1) + "\n")


def train(arguments, model, variant, seed):
    """Runs `gradwire train` once; returns its summary."""
    with tempfile.TemporaryDirectory(prefix="gradwire-learning-") as folder:
        folder = pathlib.Path(folder)
        config = {**configuration(model, variant), "seed": seed}
        (folder / "config.json").write_text(json.dumps(config))
        command = [arguments.gradwire, "train", folder / "config.json", "-n", arguments.ranks,
                   "--output", folder, "--json", folder / "summary.json"]
        if model.config["data"].get("name") == "text":
            command += ["--data", jargon_file(arguments.gradwire.parent.parent / "learning")]
        # The ring sends the textbook's bytes, whatever the tuner would choose on this machine.
        done = subprocess.run([str(word) for word in command], text=True, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env={**os.environ, "GRADWIRE_ALGORITHM": "all_reduce=ring"})
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n"
                             f"{done.stdout}")
        return json.loads((folder / "summary.json").read_text())


def variants_of(model, variants):
    return [variant for variant in variants if not model.only or variant.name in model.only]


def measure(arguments, store):
    todo = [(model, variant, seed)
            for seed in range(1, arguments.seeds + 1)
            for model in arguments.models
            for variant in variants_of(model, arguments.variants)
            if arguments.again or seed not in
            [run["seed"] for run in store.runs(model, variant, arguments.ranks)]]
    for number, (model, variant, seed) in enumerate(todo, 1):
        begin = time.monotonic()
        summary = train(arguments, model, variant, seed)
        store.add({"model": model.name, "variant": variant.name, "ranks": arguments.ranks,
                   "seed": seed, "config": configuration(model, variant), **summary})
        print(f"{number}/{len(todo)}  {model.name}  {variant.name}  seed {seed}:  "
              f"{model.scale * summary[model.measure]:.4f} {model.unit},  "
              f"{summary['sent_bytes_per_step']:.0f} B a step,  "
              f"{time.monotonic() - begin:.0f} s", flush=True)


def write_page(path, text):
    page = path.read_text()
    if BEGIN not in page or END not in page:
        raise SystemExit(f"{path} lacks the lines '{BEGIN}' and '{END}'")
    before, rest = page.split(BEGIN, 1)
    path.write_text(before + BEGIN + "\n\n" + text + "\n" + END + rest.split(END, 1)[1])


def chosen(parser, option, given, all_of):
    """Returns those of `all_of` that the option names, in the order of `all_of`."""
    if not given:
        return all_of
    words = given.split(",")
    unknown = set(words) - {one.name for one in all_of}
    if unknown:
        parser.error(f"{option}: unknown {', '.join(sorted(unknown))}; there are "
                     f"{', '.join(one.name for one in all_of)}")
    return [one for one in all_of if one.name in words]


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gradwire", type=pathlib.Path, default=ROOT / "build/bin/gradwire")
    parser.add_argument("--seeds", type=int, default=5, help="how many, from 1 (default: 5)")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--only", help="comma-separated variants")
    parser.add_argument("--models", help="comma-separated models")
    parser.add_argument("--again", action="store_true", help="repeat stored runs")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "bench/learning.json")
    parser.add_argument("--page", type=pathlib.Path, default=ROOT / "docs/compression.md")
    arguments = parser.parse_args()
    arguments.gradwire = arguments.gradwire.resolve()
    arguments.variants = chosen(parser, "--only", arguments.only, VARIANTS)
    arguments.models = chosen(parser, "--models", arguments.models, MODELS)
    return arguments


def main():
    arguments = parse()
    store = Store(arguments.output)
    measure(arguments, store)
    write_page(arguments.page, tables(MODELS, VARIANTS, lambda model, variant:
                                      store.runs(model, variant, arguments.ranks)))


if __name__ == "__main__":
    sys.exit(main())
