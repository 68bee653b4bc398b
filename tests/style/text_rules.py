"""Rules about the text of one file. Each takes (path, text) and yields (line, message)."""

import ast
import re

from tree import CODE, CPP, ROOT, code_of

MAX_FUNCTION_LINES = 70
MAX_COLUMNS = 100

_LEFT_OVER = re.compile(r"\b(TODO|FIXME|XXX)\b")
_HEAVY = {"CLI/CLI.hpp", "nlohmann/json.hpp", "regex", "iostream", "fmt/ranges.h", "fmt/chrono.h"}
_TIMED = re.compile(r"(EXPECT|ASSERT)_(LT|LE|NEAR)\(.*(Steady|steady_)(C|c)lock"
                    r"|assertLess(Equal)?\(.*\btime\.(monotonic|perf_counter|time)\(\)")
_NO_FUNCTION = re.compile(r"\s*(namespace|class|struct|enum|union|extern|template|if|for|while"
                          r"|switch|else|do|try|case|default|public|private|protected|#|\})")


def whitespace(path, text):
    for number, line in enumerate(text.splitlines(), 1):
        if line != line.rstrip() and path.suffix != ".md":  # In Markdown, two blanks break a line.
            yield number, "trailing whitespace"
        if "\t" in line and path.name != "Makefile":
            yield number, "a tab: use blanks"
    if text and not text.endswith("\n"):
        yield text.count("\n") + 1, "no newline at the end"


def left_overs(path, text):
    if "tests/style" in path.as_posix():
        return
    for number, line in enumerate(text.splitlines(), 1):
        if _LEFT_OVER.search(line):
            yield number, "unfinished business: do it, or make it an issue"


def line_length(path, text):
    for number, line in enumerate(text.splitlines(), 1):
        if path.suffix in CODE and len(line) > MAX_COLUMNS:
            yield number, f"{len(line)} columns, more than {MAX_COLUMNS}"


def pragma_once(path, text):
    if path.suffix == ".h" and "#pragma once" not in text.splitlines():
        yield 1, "a header without #pragma once"


def include_paths(path, text):
    """A header has one name, so that an include shows the layer."""
    for number, line in enumerate(text.splitlines(), 1):
        found = re.match(r'#include "([^"]+)"', line)
        if path.suffix in CPP and found and not found.group(1).startswith(("gradwire/", "tests/")):
            yield number, f'"{found.group(1)}": include by full path, "gradwire/..."'


def own_header_first(path, text):
    """Shows, whenever the source is compiled, that the header needs no other header before it."""
    own = header_of(path)
    includes = [(n, line) for n, line in enumerate(text.splitlines(), 1)
                if line.startswith("#include")]
    if own and includes and includes[0][1] != f'#include "{own}"':
        yield includes[0][0], f'include "{own}" first'


def header_of(path):
    """Returns the header of a source under src, as includes name it, or None."""
    header = path.with_suffix(".h")
    if path.suffix == ".cpp" and path.parts[0] == "src" and (ROOT / header).exists():
        return header.relative_to("src").as_posix()
    return None


def comment_beginnings(path, text):
    """In a comment that begins with such a word the reader has to look for the subject."""
    mark = {".h": "///?<?", ".cpp": "///?<?"}.get(path.suffix, "#")
    if path.suffix not in CODE and path.name != "CMakeLists.txt":
        return
    last_column = None  # A further line of a comment is aligned with the line before.
    for number, line in enumerate(text.splitlines(), 1):
        comment = re.search(rf'(?:^|\s){mark} (.*)|^\s*"""(.*)', line)
        words = (comment.group(1) or comment.group(2) or "") if comment else ""
        column = comment.start(comment.lastindex) if comment else None
        begins = comment and (column != last_column or line[:comment.start()].strip())
        if begins and re.match("(Of|What|That|As) ", words):
            yield number, f"a comment that begins with {words.split()[0]!r}: begin with the subject"
        last_column = column


def heavy_headers(path, text):
    """An include of a header is parsed once for each file that includes it."""
    if path.suffix != ".h" or path.parts[0] != "src":
        return
    allowed = {"CLI/CLI.hpp", "nlohmann/json.hpp"} if "cli" in path.parts else set()
    for number, line in enumerate(text.splitlines(), 1):
        found = re.match(r"#include <(.*)>", line)
        if found and found.group(1) in _HEAVY - allowed:
            yield number, f"<{found.group(1)}> in a header: include it in sources"


def timed_assertions(path, text):
    """A slow machine fails them. bench measures; hosts/ asserts what the documents promise."""
    if path.parts[0] != "tests" or path.parts[1] in ("hosts", "style"):
        return
    for number, line in enumerate(text.splitlines(), 1):
        if _TIMED.search(line):
            yield number, "an assertion on the time that something took: measure it in bench"


def function_length(path, text):
    functions = {".py": _python_functions, ".h": _cpp_functions, ".cpp": _cpp_functions}
    for first, last in functions.get(path.suffix, lambda _: [])(text):
        if last - first + 1 > MAX_FUNCTION_LINES:
            yield first, (f"a function of {last - first + 1} lines, more than "
                          f"{MAX_FUNCTION_LINES}: give its parts names")


def _python_functions(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.lineno, node.end_lineno


def _cpp_functions(text):
    """Returns first and last line of each function, by clang-format's indentation."""
    lines = code_of(text).splitlines()
    for first, line in enumerate(lines):
        if "(" not in line or _NO_FUNCTION.match(line):
            continue
        depth = len(line) - len(line.lstrip())
        for last in range(first + 1, len(lines)):
            inner = lines[last]
            if not inner.strip() or inner.startswith("#"):
                continue
            if len(inner) - len(inner.lstrip()) <= depth:
                if inner.strip().startswith("}"):
                    yield first + 1, last + 1
                break


RULES = [whitespace, left_overs, line_length, pragma_once, include_paths, own_header_first,
         comment_beginnings, heavy_headers, timed_assertions, function_length]
