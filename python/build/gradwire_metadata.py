"""Metadata of the package: its version, and the releases of PyTorch that it needs. A package is
built for one minor release, which is checked when it is imported: with an upper bound pip would
replace the user's PyTorch."""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def _value_in(file, pattern):
    return re.search(pattern, (ROOT / file).read_text(encoding="utf-8")).group(1)


def own_version():
    return _value_in("CMakeLists.txt", r"project\(gradwire VERSION ([\d.]+)")


def oldest_torch():
    return _value_in("cmake/GradwireTorch.cmake", r"set\(GRADWIRE_OLDEST_TORCH ([\d.]+)\)")


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


def minor(version):
    """Returns (2, 13) for 2.13.0."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def dependencies():
    """Raises RuntimeError before anything is compiled if the PyTorch that is there is too old."""
    torch, oldest = torch_release(), oldest_torch()
    if torch and minor(torch) < minor(oldest):
        raise RuntimeError(f"gradwire needs PyTorch {oldest} or newer, but this Python has PyTorch "
                           f"{torch}: pip install --upgrade torch")
    return [f"torch>={oldest}"]


def dynamic_metadata(field, settings=None):  # noqa: ARG001: scikit-build-core's interface.
    if field == "version":
        return own_version()
    if field == "dependencies":
        return dependencies()
    raise ValueError(f"gradwire_metadata has no field {field}")
