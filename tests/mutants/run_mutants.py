#!/usr/bin/env python3
"""Plants bugs in copies of the sources of state machines. Each must be found by the simulations of
its layer, or by the tests named with a bug whose only effect is a delay.

usage: run_mutants.py --build BUILD --source SOURCE [--only TEXT]

Each entry of mutants.json has a file of src/gradwire/engine, or of another "layer", a piece of text
that occurs in it exactly once, its replacement, and optionally "test", a filter of tests. All bugs
of a layer are compiled into one program, its simulation test: a function with bugs has one body for
each and the original one, and the environment chooses. The changed files are compiled with the
project's own flags and linked before the libraries.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import typing

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import build_tree  # noqa: E402

SHARDS = 4
SIMULATIONS = 4000
SIMULATIONS_WITHOUT_BUGS = 100  # The tests themselves run all.
# A shard of simulations takes a quarter of it without a bug; with one it may have no end.
PROCESSOR_LIMIT_S = 30
CHOICE = """#include <cstdlib>
int gradwire_mutant() {
  static const int number = std::atoi(std::getenv("GRADWIRE_MUTANT"));
  return number;
}
"""


# The head of a function, up to its brace: its other lines are indented by four more.
HEAD = (r"^{0}(?!namespace|struct|class|enum|if|for|while|switch)[A-Za-z_\[][^\n;]*"
        r"(?:\n{0} {{4}}[^\n;]+)*\{{\n")


def body_of(text, at):
    """Returns (begin, end) of the body of the function, or of a class, that has the position."""
    for indent in ("", "  "):
        heads = list(re.compile(HEAD.format(indent), re.MULTILINE).finditer(text, 0, at))
        if heads:
            begin, end = heads[-1].end(), text.index(f"\n{indent}}}\n", heads[-1].start()) + 1
            if at < end:
                return begin, end
    raise SystemExit(f"no function has: {text[at:at + 80]}")


def with_bugs(text, mutants):
    """Returns the source with all of its bugs, {number: (text, replacement)}."""
    bodies = {}
    for number, (find, replace) in mutants.items():
        begin, end = body_of(text, text.index(find))
        bodies.setdefault((begin, end), []).append(
            (number, text[begin:end].replace(find, replace)))
    for (begin, end), changed in sorted(bodies.items(), reverse=True):
        cases = "".join(f"case {number}: {{\n{body}}}\nbreak;\n" for number, body in changed)
        text = (f"{text[:begin]}switch (gradwire_mutant()) {{\n{cases}default: {{\n"
                f"{text[begin:end]}}}\n}}\n{text[end:]}")
    return "int gradwire_mutant();\n" + text


def compile_command(build, source):
    for entry in build_tree.compile_commands(build):
        if entry["file"] == str(source):
            return shlex.split(entry["command"])
    raise SystemExit(f"{source} is not in compile_commands.json")


def compile_source(build, original, text, folder):
    changed = folder / original.name
    changed.write_text(text)
    command = compile_command(build, original)
    output = folder / (original.stem + ".o")
    replaced = {str(original): str(changed)}
    arguments = [replaced.get(word, word) for word in command]
    arguments[arguments.index("-o") + 1] = str(output)
    # A planted bug may cause warnings, which must not count as detection.
    done = build_tree.compile_cached(build, [*arguments, "-w", "-O1"], build)
    if done.returncode:
        raise SystemExit(done.stdout)
    return output


class Simulation(typing.NamedTuple):
    """The simulation test of a layer."""

    target: str  # Whose objects it has.
    layers: tuple[str, ...]  # Which it links.
    filters: tuple[str, ...]  # Which tests must pass; they run side by side.
    simulations: int = SIMULATIONS


SERVERS_AND_BELOW = ("servers", "exchange", "trace", "codec", "comm", "mpi", "bootstrap", "engine",
                     "net", "schedule", "topology", "base")
SIMULATIONS_OF = {
    "engine": Simulation("simulated_jobs", ("engine", "net", "schedule", "topology", "base"),
                         tuple(f"*FaultSimulation*/{shard}" for shard in range(SHARDS))),
    "servers": Simulation("test_servers", SERVERS_AND_BELOW,
                          ("*Rule*:ServerCore*:ServerPolicy*:Staleness.*",)),
    # A simulated round has some hundred key agreements.
    "federated": Simulation("test_federated",
                            ("federated", "codec", "bootstrap", "net", "topology", "base"),
                            ("*LyingServer*:SecureRound.*:*SecureSimulation*/0",), 400),
}


def layer_of(mutant):
    return mutant.get("layer", "engine")


def source_of(source, mutant):
    return source / "src/gradwire" / layer_of(mutant) / mutant["file"]


def simulation_objects(build, target):
    """Returns the objects that the build makes now: the folder may hold those of moved sources."""
    outputs = [re.search(rf" -o (\S*/{target}\.dir/\S+\.o) ", entry["command"])
               for entry in build_tree.compile_commands(build)]
    return [build / output.group(1) for output in outputs if output]


def link(build, layer, changed, folder):
    program = folder / layer
    simulation = SIMULATIONS_OF[layer]
    objects = simulation_objects(build, simulation.target)
    libraries = [build / "tests/libtest_support.a",
                 *(build / f"libgradwire_{each}.a" for each in simulation.layers)]
    command = ["c++", "-o", program, *changed, *objects, *libraries, "-lgtest", "-lgtest_main",
               "-lgmock", "-lisal", "-lxxhash", "-lfmt", "-lssl", "-lcrypto", "-lz",
               "-lpthread"]
    subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True)
    return program


def survives(program, number, filters, simulations=SIMULATIONS):
    """Returns True if no test fails. A filter that selects no test is an error."""
    for tests in filters:
        environment = {**os.environ, "GRADWIRE_SIMULATIONS": str(simulations),
                       "GRADWIRE_DAY": "1", "GRADWIRE_MUTANT": str(number)}
        limited = ["sh", "-c", f'ulimit -t {PROCESSOR_LIMIT_S} && exec "$0" "$@"', program]
        try:
            run = subprocess.run([*limited, f"--gtest_filter={tests}"], env=environment,
                                 capture_output=True, text=True, timeout=10 * PROCESSOR_LIMIT_S)
        except subprocess.TimeoutExpired:  # It waits for something.
            return False
        if "[==========] Running 0 tests" in run.stdout:
            raise SystemExit(f"there is no test {tests}")
        if "[  PASSED  ]" not in run.stdout or run.returncode != 0:
            return False
    return True


def filters_of(mutant):
    return [mutant["test"]] if "test" in mutant else SIMULATIONS_OF[layer_of(mutant)].filters


def stale(source, mutant):
    """Returns why the entry does not fit its file; None if it does."""
    count = source_of(source, mutant).read_text().count(mutant["find"])
    return None if count == 1 else f"stale: its text stands {count} times in {mutant['file']}"


def build_all(build, source, mutants, folder, pool):
    """Returns {layer: the program with all its mutants}. `mutants`: {number: mutant}."""
    by_file = {}
    for number, mutant in mutants.items():
        changes = by_file.setdefault((layer_of(mutant), source_of(source, mutant)), {})
        changes[number] = (mutant["find"], mutant["replace"])

    def compiled(key):
        layer, original = key
        changed = with_bugs(original.read_text(), by_file[key])
        return layer, compile_source(build, original, changed, folder)

    choice = folder / "choice.cpp"
    choice.write_text(CHOICE)
    objects = {}
    for layer, compiled_file in pool.map(compiled, by_file):
        objects.setdefault(layer, [choice]).append(compiled_file)
    return {layer: link(build, layer, changed, folder) for layer, changed in objects.items()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--source", type=pathlib.Path, required=True)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    arguments.build, arguments.source = arguments.build.resolve(), arguments.source.resolve()
    mutants = json.loads((pathlib.Path(__file__).parent / "mutants.json").read_text())
    mutants = [m for m in mutants if arguments.only in m["bug"]]
    verdicts = {number: stale(arguments.source, m) for number, m in enumerate(mutants, 1)}
    fitting = {number: mutants[number - 1] for number in verdicts if verdicts[number] is None}
    folder = arguments.build / "mutants"
    folder.mkdir(exist_ok=True)
    with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        programs = build_all(arguments.build, arguments.source, fitting, folder, pool)
        for layer, program in programs.items():
            if not survives(program, 0, SIMULATIONS_OF[layer].filters, SIMULATIONS_WITHOUT_BUGS):
                sys.exit(f"the tests of {layer} fail without a bug")
        surviving = pool.map(
            lambda number: survives(programs[layer_of(fitting[number])], number,
                                    filters_of(fitting[number]),
                                    SIMULATIONS_OF[layer_of(fitting[number])].simulations),
            fitting)
        verdicts |= {number: "SURVIVES" if lives else None
                     for number, lives in zip(fitting, surviving)}
    for number, mutant in enumerate(mutants, 1):
        place = f"{layer_of(mutant)}/{mutant['file']}"
        print(f"{place:42} {mutant['bug']}: {verdicts[number] or 'found'}", flush=True)
    failures = sum(verdict is not None for verdict in verdicts.values())
    print(f"{len(mutants) - failures} of {len(mutants)} planted bugs were found")
    return 1 if failures or not mutants else 0


if __name__ == "__main__":
    sys.exit(main())
