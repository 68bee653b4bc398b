"""The table of layers in ARCHITECTURE.md must agree with CMakeLists.txt, the includes and the
namespaces."""

import re

from tree import CPP, files, read

_ROW = re.compile(r"^\| `(\w+)` \|.*\| *([^|]*)\|$", re.MULTILINE)
_CMAKE = re.compile(r"^\s*gradwire_layer\((\w+)(?:[A-Z\s]*? USES ([a-z ]+))?[^)]*\)", re.MULTILINE)
_OURS = re.compile(r'^#include "gradwire/(\w+)/', re.MULTILINE)
_LIBTORCH = re.compile(r"^#include <(torch|ATen|c10|caffe2|pybind11)/", re.MULTILINE)
_OUR_HEADER = re.compile(r'^#include "(gradwire/[^"]+)"', re.MULTILINE)
_MODULES = re.compile(r"^#include <torch/(torch\.h|all\.h|nn|optim)", re.MULTILINE)
_NAMESPACE = re.compile(r"^namespace (gradwire[\w:]*) \{(?!(\n *[^\n{}]*;)+\n\})", re.MULTILINE)
# In namespace gradwire itself.
USERS = {"base", "comm", "trace", "torch", "data", "memory", "host", "train"}
# The layers that may include libtorch.
RIM = {"torch", "data", "memory", "host", "train", "recipe", "cli"}


def table(architecture):
    """Returns {layer: the layers of its row in ARCHITECTURE.md}; `cli` uses everything."""
    rows = {layer: set(re.findall(r"`(\w+)`", uses)) for layer, uses in _ROW.findall(architecture)}
    if "cli" in rows:
        rows["cli"] = set(rows) - {"cli"}
    return rows


def reachable(uses):
    """Returns {layer: itself and all that it may use, directly or indirectly}."""
    closed = {}

    def close(layer):
        if layer not in closed:
            closed[layer] = {layer}
            for used in uses.get(layer, ()):
                closed[layer] |= close(used)
        return closed[layer]

    for layer in uses:
        close(layer)
    return closed


def wrong_includes(path, text, uses):
    """Yields (line, message) for a file under src/gradwire/LAYER."""
    layer = path.parts[2]
    if layer not in uses:
        yield 1, f"{layer} is no layer of ARCHITECTURE.md"
        return
    allowed = reachable(uses)[layer]
    for number, line in enumerate(text.splitlines(), 1):
        ours = _OURS.match(line)
        if ours and ours.group(1) not in allowed:
            yield number, f"{layer} may not use {ours.group(1)}, only {', '.join(sorted(allowed))}"
        if _LIBTORCH.match(line) and layer not in RIM:
            yield number, f"{layer} may not include libtorch: only {', '.join(sorted(RIM))} may"


def wrong_namespaces(path, text):
    """Yields (line, message). Blocks of mere declarations may be of any namespace."""
    layer = path.parts[2]
    own = "gradwire" if layer in USERS else f"gradwire::{layer}"
    for found in _NAMESPACE.finditer(text):
        inside = layer not in USERS and found[1].startswith(own + "::")
        if not inside and found[1] not in (own, "gradwire::detail"):
            yield text.count("\n", 0, found.start()) + 1, f"{found[1]}: {layer} is {own}"


def module_includes(begin, text_of):
    """Yields the headers that include libtorch's modules or optimizers, of the header `begin` and
    those of ours that it includes."""
    seen, unread = set(), [begin]
    while unread:
        path = unread.pop()
        if path in seen:
            continue
        seen.add(path)
        text = text_of(path)
        if _MODULES.search(text):
            yield path
        unread += [f"src/{name}" for name in _OUR_HEADER.findall(text)]


def wrong_in_cmake(cmake, uses):
    """Yields differences between CMakeLists.txt and the table."""
    said = {layer: set(names.split()) for layer, names in _CMAKE.findall(cmake)}
    for layer in sorted((set(uses) - {"cli"}) | set(said)):
        if said.get(layer) != uses.get(layer):
            yield (f"{layer} uses {said.get(layer, 'nothing: it is missing')} in CMakeLists.txt, "
                   f"{uses.get(layer, 'nothing: it is missing')} in ARCHITECTURE.md")


def violations():
    uses = table(read("ARCHITECTURE.md"))
    for path in files(suffixes=CPP):
        if path.as_posix().startswith("src/gradwire/"):
            text = read(path)
            for line, what in (*wrong_includes(path, text, uses), *wrong_namespaces(path, text)):
                yield f"{path}:{line}: {what}"
        if path.as_posix().startswith("src/gradwire/host/") and path.suffix == ".h":
            for header in module_includes(path.as_posix(), read):
                yield f"{path}: includes modules or optimizers, by {header}"
    for what in wrong_in_cmake(read("CMakeLists.txt"), uses):
        yield f"CMakeLists.txt: {what}"
