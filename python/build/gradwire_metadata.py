"""Metadata of the wheel: a version tagged with the PyTorch it is built with, and a requirement of
that version. c10d's C++ interface changes from one release to the next."""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def own_version():
    text = (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")
    return re.search(r"project\(gradwire VERSION ([\d.]+)", text).group(1)


def torch_release():
    """Returns 2.13.0 for 2.13.0+cpu, or None without PyTorch (an sdist needs none). It is that of
    the Python that installs, even if pip isolates the build, which it does by PYTHONPATH."""
    ask = "import importlib.metadata as m; print(m.version('torch'))"
    for options in ([], ["-E"]):
        done = subprocess.run([sys.executable, *options, "-c", ask], capture_output=True, text=True,
                              check=False)
        if done.returncode == 0:
            return done.stdout.strip().partition("+")[0]
    return None


def dynamic_metadata(field, settings=None):  # noqa: ARG001: scikit-build-core's interface.
    torch = torch_release()
    if field == "version":
        return own_version() + (f"+torch{torch}" if torch else "")
    if field == "dependencies":
        return [f"torch=={torch}"] if torch else ["torch"]
    raise ValueError(f"gradwire_metadata has no field {field}")
