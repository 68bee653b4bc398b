"""No two types of one name in one namespace of one program: the linker would keep one of them, and
use its destructor for objects of the other (a violation of the one-definition rule, which no
compiler checks)."""

import re

from tree import CPP, ROOT, code_of, files, read

# The text before a brace, back to the last statement or brace, shows what the brace opens.
_BRACE = re.compile(r"[{};]")
_NAMESPACE = re.compile(r"\b(?:inline\s+)?namespace(?:\s+(?P<name>[\w:]+))?\s*$")
_TYPE = re.compile(r"(?:^|>|\s)(?:class|struct|union|enum(?:\s+(?:class|struct))?)\s+"
                   r"(?:\[\[.*?\]\]\s*|alignas\s*\([^)]*\)\s*)*"
                   r"(?P<name>\w+)\s*(?:final\b\s*)?(?::(?!:)[^;{}()]*)?$", re.DOTALL)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:\\\n|[^\n])*", re.MULTILINE)

UNNAMED = "(unnamed)"


def definitions(text):
    """Returns (line, qualified name) of each type in a named namespace or in none."""
    code = _DIRECTIVE.sub(lambda match: "\n" * match.group(0).count("\n"), code_of(text))
    scopes, begin = [], 0
    for brace in _BRACE.finditer(code):
        before, at = code[begin:brace.start()], brace.start()
        begin = brace.end()
        if brace.group(0) == "}" and scopes:
            scopes.pop()
        if brace.group(0) != "{":
            continue
        namespace, kind = _NAMESPACE.search(before), _TYPE.search(before)
        if namespace:
            scopes.append(namespace.group("name") or UNNAMED)
            continue
        if kind and None not in scopes and UNNAMED not in scopes:
            yield code.count("\n", 0, at) + 1, "::".join([*scopes, kind.group("name")])
        scopes.append(None)


def programs(paths):
    """Returns the possible sources of each program: all of src, with each folder of tests."""
    library = [path for path in paths if path.parts[0] != "tests"]
    folders = {path.parts[1] for path in paths if path.parts[0] == "tests"}
    yield library
    for folder in sorted(folders):
        yield library + [path for path in paths if path.parts[:2] == ("tests", folder)]


def violations(root=ROOT):
    paths = [path for path in files(root, CPP) if path.parts[0] in ("src", "python", "tests")]
    defined = {path: list(definitions(read(path, root))) for path in paths}
    found = set()
    for program in programs(paths):
        places = {}
        for path in program:
            for line, name in defined[path]:
                places.setdefault(name, []).append(f"{path}:{line}")
        found |= {(name, tuple(where)) for name, where in places.items() if len(where) > 1}
    for name, where in sorted(found):
        yield f"{', '.join(where)}: {name} is defined in each of them: give one another name"
