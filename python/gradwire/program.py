"""Finds and runs the gradwire program."""

import importlib.metadata
import json
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, NoReturn


def path() -> str:
    """Returns the program's path: $GRADWIRE_PROGRAM, otherwise that of this package, or the first
    on PATH. Raises FileNotFoundError that lists them."""
    own = pathlib.Path(__file__).absolute().parent / "bin" / "gradwire"
    for candidate in (os.environ.get("GRADWIRE_PROGRAM"), own, shutil.which("gradwire")):
        if candidate and os.access(candidate, os.X_OK) and not _is_this_command(candidate):
            return str(candidate)
    raise FileNotFoundError(f"no gradwire program found at {own} or on PATH; set GRADWIRE_PROGRAM")


def _is_this_command(candidate: str | os.PathLike[str]) -> bool:
    """Returns True for the Python package's command, if that is what runs: it would start itself
    for ever."""
    try:
        return os.path.samefile(candidate, sys.argv[0])
    except OSError:
        return False


def environment() -> dict[str, str]:
    """Returns this environment, such that ranks started by the program find this `python`, and so
    do its benchmarks of PyTorch (--python). The program knows this Python's PyTorch, for which
    `gradwire train` must be built."""
    changed = {"GRADWIRE_PYTHON": sys.executable, **os.environ}
    changed["PATH"] = os.path.dirname(sys.executable) + os.pathsep + changed.get("PATH", "")
    try:
        changed["GRADWIRE_TORCH_INSTALLED"] = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        pass
    return changed


def output_of(arguments: Sequence[str], given: str | None = None) -> str:
    """Returns the program's standard output. Raises RuntimeError with its error message."""
    done = subprocess.run([path(), *arguments], input=given, text=True, capture_output=True,
                          env=environment(), check=False)
    if done.returncode == 0:
        return done.stdout
    raise RuntimeError(done.stderr.strip() or f"gradwire {arguments[0]}: exit {done.returncode}")


def json_of(arguments: Sequence[str], given: str | None = None) -> Any:
    """Returns output_of(), parsed as JSON."""
    return json.loads(output_of(arguments, given))


def main(arguments: Sequence[str]) -> NoReturn:
    """Replaces this process with the program."""
    program = path()
    os.execve(program, ["gradwire", *arguments], environment())
