"""The program's commands as functions that return what `--json` prints."""

import json
import os
import tempfile
from typing import Any

from gradwire import program


def plan(**options: Any) -> dict[str, Any]:
    """Predicts how a training job would run: `gradwire plan` (docs/plan.md).

    options: the command's, such as nodes=4 for --nodes 4, zero_stage=2 for --zero-stage 2; True
    stands for an option without a value; None omits the option. Returns the command's JSON as
    Python objects: the plan (`eta`, `t_s_ms`, ...), with search=True a configuration of `gradwire
    train`, with sweep="nodes=2..64" the curves; units are in the names. Raises RuntimeError with
    the command's error message, which names what is wrong and suggests the closest valid name.
    """
    return program.json_of(["plan", *_as_arguments(options), "--json", "-"])


def probe(output: str | os.PathLike[str] | None = None, **options: Any) -> dict[str, Any]:
    """Measures the network between the hosts: `gradwire probe` (docs/topology.md).

    output: file for topology.json, which Options(topology=...) reads; None: not kept. options: the
    command's, such as hosts="a,b", seconds=0.3. Returns the topology, in seconds and bytes per
    second. Raises RuntimeError with the command's error message. Starts a rank on each host.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = os.fspath(output) if output is not None else os.path.join(folder, "topology.json")
        program.output_of(["probe", *_as_arguments(options), "--output", file])
        with open(file, encoding="utf-8") as stream:
            return json.load(stream)


def _as_arguments(options: dict[str, Any]) -> list[str]:
    """Converts {"ranks": 4, "json": True} to --ranks 4 --json."""
    arguments = []
    for name, value in options.items():
        if value is None or value is False:
            continue
        arguments.append("--" + name.replace("_", "-"))
        if value is not True:
            arguments.append(str(value))
    return arguments
