"""python -m gradwire COMMAND ...: the gradwire program; `run` starts ranks, as torchrun does."""

import sys

from gradwire import program


def run() -> None:
    """Replaces this process with the program."""
    program.main(sys.argv[1:])


if __name__ == "__main__":
    run()
