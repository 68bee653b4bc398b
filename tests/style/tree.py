"""The files of the project, and their text without comments and strings."""

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
    """Paths relative to `root`, sorted, of its files with one of the suffixes (None: all)."""
    found = []
    for folder in sorted(root.iterdir()):
        if not NOT_OURS.match(folder.name):
            found += [folder] if folder.is_file() else [p for p in folder.rglob("*") if p.is_file()]
    return sorted(path.relative_to(root) for path in found
                  if "__pycache__" not in path.parts
                  and (suffixes is None or path.suffix in suffixes))


def blank(match):
    """As many lines, nothing on them."""
    text = match.group(0)
    if text.startswith('"'):
        return '""'
    return "\n" * text.count("\n")


def code_of(text):
    """C++ without its comments and what its strings say, line for line."""
    return _TOKEN.sub(blank, text)


def read(path, root=ROOT):
    return (root / path).read_text(encoding="utf-8")
