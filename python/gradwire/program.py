"""Finds and runs the gradwire program."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, NoReturn


def path() -> str:
    """Returns the program's path: $GRADWIRE_PROGRAM, otherwise that of the wheel, of the build tree
    of this package, or the first on PATH. Raises FileNotFoundError that lists them."""
    here = pathlib.Path(__file__).absolute().parent
    for candidate in (os.environ.get("GRADWIRE_PROGRAM"), here / "bin" / "gradwire"):
        if candidate and os.access(candidate, os.X_OK):
            return str(candidate)
    build = pathlib.Path(os.path.abspath(_core_file())).parent.parent.parent / "bin" / "gradwire"
    for candidate in (build, shutil.which("gradwire")):
        if candidate and os.access(candidate, os.X_OK):
            return str(candidate)
    raise FileNotFoundError(f"no gradwire program found in {here / 'bin'}, at {build}, "
                            "or on PATH; set GRADWIRE_PROGRAM")


def _core_file() -> str:
    from gradwire import _core

    return _core.__file__


def environment() -> dict[str, str]:
    """Returns this environment, such that ranks started by the program find this `python`."""
    changed = dict(os.environ)
    changed["PATH"] = os.path.dirname(sys.executable) + os.pathsep + changed.get("PATH", "")
    return changed


def output_of(arguments: Sequence[str], given: str | None = None) -> str:
    """Returns the program's standard output. Raises RuntimeError with its error message."""
    done = subprocess.run([path(), *arguments], input=given, text=True, capture_output=True,
                          env=environment(), check=False)
    if done.returncode == 0:
        return done.stdout
    raise RuntimeError(done.stderr.strip() or f"gradwire {arguments[0]}: exit {done.returncode}")


def json_of(arguments: Sequence[str], given: str | None = None) -> Any:
    """As output_of(), parsed as JSON."""
    return json.loads(output_of(arguments, given))


def main(arguments: Sequence[str]) -> NoReturn:
    """Replaces this process with the program."""
    program = path()
    os.execve(program, ["gradwire", *arguments], environment())
