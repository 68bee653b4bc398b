"""Checks that the installed PyTorch is the one this build was made for."""

from gradwire import _build


def release(version: str) -> str:
    """Returns "2.13.0" for "2.13.0+cpu"."""
    return version.partition("+")[0]


def check_torch() -> None:
    """Raises ImportError, with the remedy, unless PyTorch has the release of this build: c10d's C++
    interface, which the backend implements, changes from one release to the next."""
    try:
        import torch
    except ModuleNotFoundError:
        raise ImportError(
            f"gradwire needs PyTorch {release(_build.TORCH)}, which is not installed: "
            f"pip install torch=={release(_build.TORCH)}") from None
    if release(torch.__version__) == release(_build.TORCH):
        return
    raise ImportError(
        f"this gradwire {_build.VERSION} was built with PyTorch {_build.TORCH}, but PyTorch "
        f"{torch.__version__} is installed: install torch=={release(_build.TORCH)}, or rebuild "
        f"gradwire: pip install --no-build-isolation --force-reinstall --no-deps . in its source "
        f"folder")
