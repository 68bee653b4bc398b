#!/usr/bin/env python3
"""Plants bugs in copies of the executor's sources, one at a time. Each must be found by the fault
simulations, or by the tests named with a bug whose only effect is a delay.

usage: run_mutants.py --build BUILD --source SOURCE [--only TEXT]

Each entry of mutants.json has a file of src/gradwire/engine, a piece of text that occurs in it
exactly once, its replacement, and optionally "test", a filter of tests. The changed file is
compiled with the project's own flags and linked, before the libraries, with the objects of the
simulation test.
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
import tempfile

SHARDS = 4
SIMULATIONS = "4000"
TIME_LIMIT_S = 120


def compile_command(build, source):
    entries = json.loads((build / "compile_commands.json").read_text())
    for entry in entries:
        if entry["file"] == str(source):
            return shlex.split(entry["command"])
    raise SystemExit(f"{source} is not in compile_commands.json")


def compile_mutant(build, original, text, folder):
    changed = folder / original.name
    changed.write_text(text)
    command = compile_command(build, original)
    output = folder / (original.stem + ".o")
    replaced = {str(original): str(changed)}
    arguments = [replaced.get(word, word) for word in command]
    arguments[arguments.index("-o") + 1] = str(output)
    # A planted bug may cause unused-variable warnings, which must not count as detection.
    subprocess.run(arguments + ["-w", "-O1"], check=True, cwd=build, capture_output=True, text=True)
    return output


def simulation_objects(build):
    """Returns the objects that the build makes now: the folder may hold those of moved sources."""
    entries = json.loads((build / "compile_commands.json").read_text())
    outputs = [re.search(r" -o (\S*/simulated_jobs\.dir/\S+\.o) ", entry["command"])
               for entry in entries]
    return [build / output.group(1) for output in outputs if output]


def link(build, mutant, folder):
    program = folder / "simulation"
    objects = simulation_objects(build)
    layers = ("engine", "net", "schedule", "topology", "base")
    libraries = [build / f"libgradwire_{layer}.a" for layer in layers]
    command = ["c++", "-o", program, mutant, *objects, *libraries, "-lgtest", "-lgtest_main",
               "-lgmock", "-lisal", "-lxxhash", "-lfmt", "-lssl", "-lcrypto",
               "-lpthread"]
    subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True)
    return program


def survives(program, filters):
    """Returns True if no test fails. A filter that selects no test is an error."""
    for tests in filters:
        environment = {**os.environ, "GRADWIRE_SIMULATIONS": SIMULATIONS}
        try:
            run = subprocess.run([program, f"--gtest_filter={tests}"], env=environment,
                                 capture_output=True, text=True, timeout=TIME_LIMIT_S)
        except subprocess.TimeoutExpired:
            return False
        if "[==========] Running 0 tests" in run.stdout:
            raise SystemExit(f"there is no test {tests}")
        if "[  PASSED  ]" not in run.stdout or run.returncode != 0:
            return False
    return True


def filters_of(mutant):
    shards = [f"*FaultSimulation*/{shard}" for shard in range(SHARDS)]
    return [mutant["test"]] if "test" in mutant else shards


def judge(build, source, mutant):
    original = source / "src/gradwire/engine" / mutant["file"]
    text = original.read_text()
    if text.count(mutant["find"]) != 1:
        return f"stale: its text stands {text.count(mutant['find'])} times in {mutant['file']}"
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        try:
            changed = text.replace(mutant["find"], mutant["replace"])
            program = link(build, compile_mutant(build, original, changed, folder), folder)
        except subprocess.CalledProcessError as error:
            return f"does not build: {error.stderr[-2000:]}"
        return "SURVIVES" if survives(program, filters_of(mutant)) else None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--source", type=pathlib.Path, required=True)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    arguments.build, arguments.source = arguments.build.resolve(), arguments.source.resolve()
    mutants = json.loads((pathlib.Path(__file__).parent / "mutants.json").read_text())
    mutants = [m for m in mutants if arguments.only in m["bug"]]
    failures = 0
    with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        verdicts = pool.map(lambda m: judge(arguments.build, arguments.source, m), mutants)
        for mutant, verdict in zip(mutants, verdicts):
            failures += verdict is not None
            print(f"{mutant['file']:20} {mutant['bug']}: {verdict or 'found'}", flush=True)
    print(f"{len(mutants) - failures} of {len(mutants)} planted bugs were found")
    return 1 if failures or not mutants else 0


if __name__ == "__main__":
    sys.exit(main())
