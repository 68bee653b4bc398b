"""Chooses the extension module for the installed PyTorch."""

import importlib.machinery
import pathlib

from gradwire import _build

_HERE = pathlib.Path(__file__).absolute().parent


def minor_release(version: str) -> str:
    """Returns "2.13" for "2.13.0+cpu"."""
    return ".".join(version.split(".")[:2])


def releases(folder: pathlib.Path = _HERE) -> dict[str, pathlib.Path]:
    """Returns the folder of the extension module for each release of PyTorch that this package has
    one for, oldest release first. Other versions of Python have other modules."""
    suffix = importlib.machinery.EXTENSION_SUFFIXES[0]
    found = {module.parent.name.removeprefix("_torch_").replace("_", "."): module.parent
             for module in folder.glob("_torch_*/_core" + suffix)}
    return dict(sorted(found.items(), key=lambda item: [int(n) for n in item[0].split(".")]))


def module_folder(folder: pathlib.Path = _HERE) -> str:
    """Returns the folder of `_core` for the installed PyTorch. Raises ImportError, with the remedy,
    if there is none: c10d's C++ interface, which the backend implements, changes from one minor
    release to the next."""
    built_for = releases(folder)
    if not built_for:
        raise ImportError(f"this gradwire {_build.VERSION} was built for another version of "
                          f"Python: {_REBUILD}")
    *others, newest = built_for
    known = ", ".join(others) + " and " + newest if others else newest
    try:
        import torch
    except ModuleNotFoundError:
        raise ImportError(f"gradwire needs PyTorch {known}, which is not installed: "
                          f"pip install 'torch=={newest}.*'") from None
    found = built_for.get(minor_release(torch.__version__))
    if found is None:
        raise ImportError(
            f"this gradwire {_build.VERSION} was built for PyTorch {known}, but PyTorch "
            f"{torch.__version__} is installed: install 'torch=={newest}.*', or a newer gradwire, "
            f"or {_REBUILD}")
    return str(found)


_REBUILD = ("rebuild it: pip install --no-build-isolation --force-reinstall --no-deps . in its "
            "source folder")
