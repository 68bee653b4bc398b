"""python -m gradwire COMMAND ...: the gradwire program; `run` starts ranks, as torchrun does."""

import sys

from gradwire import program


def run() -> None:
    """The program, in place of this process."""
    program.main(sys.argv[1:])


if __name__ == "__main__":
    run()
