"""Whether the PyTorch that is here is the one this build was made for."""

from gradwire import _build


def release(version: str) -> str:
    """2.13.0 of "2.13.0+cpu"."""
    return version.partition("+")[0]


def check_torch() -> None:
    """Raises ImportError, with the remedy, if there is no such PyTorch: c10d's C++ interface, which
    the backend implements, changes from one release to the next."""
    try:
        import torch
    except ModuleNotFoundError:
        raise ImportError(
            f"gradwire needs PyTorch {release(_build.TORCH)}, and there is none: "
            f"pip install torch=={release(_build.TORCH)}") from None
    if release(torch.__version__) == release(_build.TORCH):
        return
    raise ImportError(
        f"this gradwire {_build.VERSION} was built with PyTorch {_build.TORCH}, and here is "
        f"PyTorch {torch.__version__}: install torch=={release(_build.TORCH)}, or build gradwire "
        f"again: pip install --no-build-isolation --force-reinstall --no-deps . in its source "
        f"folder")
