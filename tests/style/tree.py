"""The project's files, and their text without comments and strings."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
NOT_OURS = re.compile(r"^(\.git|\.venv|\.node|build.*|demo-output|__pycache__)$")
CPP = {".h", ".cpp"}
CODE = CPP | {".py", ".sh", ".cmake"}

# Comments, strings (raw ones too) and character literals.
_TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<tag>[^()\s]*)\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'", re.DOTALL)


def files(root=ROOT, suffixes=None):
    """Returns sorted paths, relative to `root`, of files with one of the suffixes (None: all)."""
    found = []
    for folder in sorted(root.iterdir()):
        if not NOT_OURS.match(folder.name):
            found += [folder] if folder.is_file() else [p for p in folder.rglob("*") if p.is_file()]
    return sorted(path.relative_to(root) for path in found
                  if "__pycache__" not in path.parts
                  and (suffixes is None or path.suffix in suffixes))


def blank(match):
    """Returns the same number of empty lines."""
    text = match.group(0)
    if text.startswith('"'):
        return '""'
    return "\n" * text.count("\n")


def code_of(text):
    """Returns C++ without comments and without the content of strings, line by line."""
    return _TOKEN.sub(blank, text)


def read(path, root=ROOT):
    return (root / path).read_text(encoding="utf-8")
