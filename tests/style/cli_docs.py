"""docs/cli.md and --help of the commands must have the same options."""

import pathlib
import re
import subprocess

from tree import read

_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
_SECTION = re.compile(r"^## gradwire ([a-z]+(?: [a-z]+)?)$", re.MULTILINE)


def sections(text):
    """Returns {command: its section of docs/cli.md}."""
    parts = _SECTION.split(text)
    return dict(zip(parts[1::2], parts[2::2]))


def options_of(text):
    return set(_OPTION.findall(text)) - {"--help"}


def defined_options(help_text):
    """Returns the options that --help defines: those before the first gap of an indented line."""
    defined = re.findall(r"^ +(-.*?)(?:  |$)", help_text, re.MULTILINE)
    return {option for words in defined for option in _OPTION.findall(words)} - {"--help"}


def disagreements(command, documented, defined):
    """Yields differences between the document and --help of a command."""
    for option in sorted(defined - documented):
        yield f"docs/cli.md: gradwire {command} has {option}, undocumented"
    for option in sorted(documented - defined):
        yield f"docs/cli.md: gradwire {command} {option} is documented, and not there"


def violations(build):
    program = pathlib.Path(build) / "bin/gradwire"
    for command, text in sections(read("docs/cli.md")).items():
        done = subprocess.run([program, *command.split(), "--help"], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              stdin=subprocess.DEVNULL)
        if done.returncode:
            yield f"gradwire {command} --help exits with {done.returncode}: {done.stdout}"
        else:
            yield from disagreements(command, options_of(text), defined_options(done.stdout))
