"""The gradwire program, as this package or PATH has it."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, NoReturn


def path() -> str:
    """Where the program is: $GRADWIRE_PROGRAM, else that of the wheel, else of the build tree whose
    package this is, else the first on PATH. Raises FileNotFoundError that names them."""
    here = pathlib.Path(__file__).absolute().parent
    for candidate in (os.environ.get("GRADWIRE_PROGRAM"), here / "bin" / "gradwire"):
        if candidate and os.access(candidate, os.X_OK):
            return str(candidate)
    build = pathlib.Path(os.path.abspath(_core_file())).parent.parent.parent / "bin" / "gradwire"
    for candidate in (build, shutil.which("gradwire")):
        if candidate and os.access(candidate, os.X_OK):
            return str(candidate)
    raise FileNotFoundError(f"no gradwire program: it is not in {here / 'bin'}, nor at {build}, "
                            "nor on PATH; set GRADWIRE_PROGRAM")


def _core_file() -> str:
    from gradwire import _core

    return _core.__file__


def environment() -> dict[str, str]:
    """This environment, with `python` meaning this Python for the ranks that the program starts."""
    changed = dict(os.environ)
    changed["PATH"] = os.path.dirname(sys.executable) + os.pathsep + changed.get("PATH", "")
    return changed


def output_of(arguments: Sequence[str], given: str | None = None) -> str:
    """What the program writes. Raises RuntimeError with its own words if it fails."""
    done = subprocess.run([path(), *arguments], input=given, text=True, capture_output=True,
                          env=environment(), check=False)
    if done.returncode == 0:
        return done.stdout
    raise RuntimeError(done.stderr.strip() or f"gradwire {arguments[0]}: exit {done.returncode}")


def json_of(arguments: Sequence[str], given: str | None = None) -> Any:
    """The same, read as JSON."""
    return json.loads(output_of(arguments, given))


def main(arguments: Sequence[str]) -> NoReturn:
    """Becomes the program."""
    program = path()
    os.execve(program, ["gradwire", *arguments], environment())
