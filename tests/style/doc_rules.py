"""Files and names in the documents must exist."""

import re

from tree import CPP, ROOT, files, read

_LINK = re.compile(r"\]\(([^)\s]+)\)")
_CODE = re.compile(r"`([^`\n]+)`")
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_PATH = re.compile(r"[\w.-]*(/[\w.*-]+)+/?|[\w-]+\.(h|cpp|md|py|sh|txt|cmake|json)")
_TYPE = re.compile(r"[A-Z][a-z]+[A-Za-z]*")


def broken_links(path, text, root=ROOT):
    """Yields (line, message) for relative links without a target."""
    for number, line in enumerate(_FENCE.sub(lambda m: "\n" * m.group(0).count("\n"), text)
                                  .splitlines(), 1):
        for target in _LINK.findall(line):
            target, _, anchor = target.partition("#")
            if re.match(r"\w+:", target):
                continue
            file = root / path.parent / target if target else root / path
            if not file.exists():
                yield number, f"link to {target}, which does not exist"
            elif anchor and file.suffix == ".md" and anchor not in _anchors(file.read_text()):
                yield number, f"link to #{anchor}, which {file.name} does not have"


def _anchors(text):
    """Returns the anchors that GitHub makes of headings."""
    headings = re.findall(r"^#+ (.*)$", _FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings}


def names_nothing(text, words, root=ROOT):
    """Yields (line, message) for paths and types in backticks that do not exist. `words`: the words
    of the sources."""
    for number, line in enumerate(text.splitlines(), 1):
        for name in _CODE.findall(line):
            if _PATH.fullmatch(name) and not _exists(name, root):
                yield number, f"{name} is named, and does not exist"
            if _TYPE.fullmatch(name) and name not in words:
                yield number, f"{name} is named, and no source has it"


def _exists(name, root):
    return any(list(folder.glob(name.rstrip("/"))) for folder in (root, root / "src/gradwire"))


def violations():
    for path in files(suffixes={".md"}):
        for line, what in broken_links(path, read(path)):
            yield f"{path}:{line}: {what}"
    words = set()
    for path in files(suffixes=CPP):
        words |= set(re.findall(r"\w+", read(path)))
    for line, what in names_nothing(read("ARCHITECTURE.md"), words):
        yield f"ARCHITECTURE.md:{line}: {what}"
