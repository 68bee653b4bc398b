"""Precompiled headers are available to every file, which therefore compiles without including them.
Without precompilation (in a project that uses our headers, for example) it would not compile."""

import functools
import re

from tree import ROOT, code_of, files, read

# The names of each precompiled header that the project uses, as regular expressions.
NAMES = {
    "algorithm": r"std::(ranges::)?(stable_)?(sort|min|max|clamp|find|find_if|copy|fill|all_of|"
                 r"any_of|none_of|count_if|transform|equal|min_element|max_element)\(",
    "chrono": r"std::chrono::",
    "filesystem": r"std::filesystem::",
    "functional": r"std::(function<|less\b|greater\b|hash<|plus\b)",
    "map": r"std::(multi)?map<",
    "memory": r"std::(unique_ptr|shared_ptr|weak_ptr|make_unique|make_shared)\b",
    "optional": r"std::(optional<|nullopt\b)",
    "string": r"std::(string|to_string)\b",
    "thread": r"std::(j?thread|this_thread)\b",
    "vector": r"std::vector<",
    "fmt/format.h": r"fmt::(format|memory_buffer|format_string)\b",
}
_INCLUDE = re.compile(r'^#include ["<](.*?)[">]', re.MULTILINE)


def precompiled():
    """Returns the headers that the layers without libtorch have precompiled."""
    cmake = read("cmake/GradwireLayers.cmake")
    call = re.search(r"gradwire_precompile\(gradwire_common_headers(.*?)\)", cmake, re.DOTALL)
    return set(re.findall(r"<(.*?)>", call.group(1)))


@functools.cache
def _brings(header):
    """Returns all headers that one of our headers includes, directly or through our headers."""
    path = ROOT / "src" / header
    return included(path.read_text(encoding="utf-8")) if path.exists() else frozenset()


def included(text):
    direct = frozenset(_INCLUDE.findall(text))
    return direct.union(*map(_brings, direct))


def missing(text):
    """Yields (line, message) for names whose header the text does not include, directly or through
    our headers."""
    have, code = included(text), code_of(text)
    if any(name.startswith(("torch/", "ATen/", "c10/")) for name in have):
        return  # libtorch's headers include all of them.
    for header, names in NAMES.items():
        use = re.search(names, code)
        if use and header not in have:
            line = code.count("\n", 0, use.start()) + 1
            yield line, f"{use.group(0)} without #include <{header}>, which is precompiled"


def violations():
    if precompiled() != set(NAMES):
        yield f"cmake/GradwireLayers.cmake precompiles {sorted(precompiled() ^ set(NAMES))} or not"
    for path in files(suffixes={".h", ".cpp"}):
        if path.parts[:2] == ("src", "gradwire"):
            for line, what in missing(read(path)):
                yield f"{path}:{line}: {what}"
