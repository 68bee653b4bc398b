"""Checks that the installed PyTorch is of the minor release that this build was made for."""

from gradwire import _build


def minor_release(version: str) -> str:
    """Returns "2.13" for "2.13.0+cpu"."""
    return ".".join(version.split(".")[:2])


def check_torch() -> None:
    """Raises ImportError, with the remedy, unless PyTorch has the minor release of this build:
    c10d's C++ interface, which the backend implements, changes from one to the next."""
    built_for = minor_release(_build.TORCH)
    try:
        import torch
    except ModuleNotFoundError:
        raise ImportError(f"gradwire needs PyTorch {built_for}, which is not installed: "
                          f"pip install 'torch=={built_for}.*'") from None
    if minor_release(torch.__version__) == built_for:
        return
    raise ImportError(
        f"this gradwire {_build.VERSION} was built with PyTorch {built_for}, but PyTorch "
        f"{torch.__version__} is installed: install 'torch=={built_for}.*', or rebuild gradwire: "
        f"pip install --no-build-isolation --force-reinstall --no-deps . in its source folder")
