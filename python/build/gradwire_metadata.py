"""Metadata of the package: its version, its description, and the releases of PyTorch that it needs.
They have no upper bound, with which pip would replace the user's PyTorch: a release that a package
has no module for is refused when it is imported."""

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


def readme():
    """Returns README.md with absolute links: PyPI's page has no files beside it."""
    base = _value_in("pyproject.toml", r'Source = "(.*)"') + "/blob/main/"
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return {"content-type": "text/markdown",
            "text": re.sub(r"\]\((?!https?:|#)", f"]({base}", text)}


def dynamic_metadata(field, settings=None):  # noqa: ARG001: scikit-build-core's interface.
    if field == "version":
        return own_version()
    if field == "dependencies":
        return dependencies()
    if field == "readme":
        return readme()
    raise ValueError(f"gradwire_metadata has no field {field}")
