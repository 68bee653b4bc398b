"""Rules that need clang-format or the compiler."""

import collections
import concurrent.futures
import functools
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

from tree import CPP, ROOT, files

sys.path.insert(0, str(ROOT / "tests/support"))
import build_tree  # noqa: E402

CLANG_FORMAT_VERSION = "14.0"  # Other versions format differently. setup.sh installs this one.


def clang_format():
    """Returns the clang-format to check with; AssertionError if the required version is missing."""
    tried = [ROOT / ".venv/bin/clang-format", "clang-format-14", "clang-format"]
    for program in filter(None, (shutil.which(str(name)) for name in tried)):
        version = subprocess.run([program, "--version"], text=True, stdout=subprocess.PIPE).stdout
        if re.search(rf"version {re.escape(CLANG_FORMAT_VERSION)}\b", version):
            return program
    raise AssertionError(f"no clang-format {CLANG_FORMAT_VERSION}: run scripts/setup.sh test")


def unformatted(paths):
    """Returns 'file: number of places' for each file that clang-format would change."""
    style = f"--style=file:{ROOT}/.clang-format"
    done = subprocess.run([clang_format(), style, "--dry-run", "-Werror", *map(str, paths)],
                          text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=ROOT)
    found = collections.Counter(re.findall(r"^(.*?):\d+:\d+: error:", done.stdout, re.MULTILINE))
    assert bool(found) == bool(done.returncode), done.stdout
    return [f"{path}: to format in {places} places: make format" for path, places in found.items()]


class Compiler:
    """Compiles headers separately, with the build's options for their layer."""

    def __init__(self, build):
        self.build = pathlib.Path(build).resolve()
        self.stubs = self.build / "style"
        self.stubs.mkdir(exist_ok=True)
        self.commands = build_tree.compile_commands(self.build)

    def options(self, layer, torch=False):
        """Returns (folder, words) of the command for some source of the layer, or of base. With
        torch: of a source with precompiled libtorch headers, if there is one."""
        for name in (layer, "base"):
            found = [command for command in self.commands
                     if f"/gradwire_{name}.dir/" in f"/{command['command']}"]
            found.sort(key=lambda command: ("cmake_pch" in command["command"]) != torch)
            if found:
                words = _without_files(shlex.split(found[0]["command"]))
                return found[0]["directory"], words if torch else _without_precompiled(words)
        raise AssertionError(f"nothing compiles {layer}, nor base")

    def errors(self, include, layer, *more):
        """Returns the compiler's messages for a file that contains only this include. It is a real
        file and a complete compilation, so that ccache caches it."""
        folder, words = self.options(layer, includes_torch(include))
        stub = self.stubs / (str(include).replace("/", "__") + ".cpp")
        stub.write_text(f'#include "{include}"\n')
        done = build_tree.compile_cached(
            self.build, [*words, *more, "-c", stub, "-o", f"{stub}.o"], folder)
        return done.stdout if done.returncode else ""


@functools.cache
def includes_torch(header):
    """Returns True if one of our headers includes libtorch's. Those include the whole standard
    library, so that precompiling them hides nothing."""
    path = ROOT / "src" / header
    if not path.exists():
        return False
    included = re.findall(r'^#include ["<](.*?)[">]', path.read_text(), re.MULTILINE)
    return any(name.startswith("torch/") or includes_torch(name) for name in included)


def _without_files(words):
    """Returns a compiler's command without source and output."""
    kept = list(words)
    for option in ("-o", "-c", "-MF", "-MT", "-MQ"):
        while option in kept:
            place = kept.index(option)
            del kept[place:place + 2]
    return kept


def _without_precompiled(words):
    """Returns the words without headers that are included in every file."""
    kept = [word for word in words if word != "-Winvalid-pch"]
    while "-include" in kept:
        place = kept.index("-include")
        del kept[place:place + 2]
    return kept


def lone_headers(layers):
    """Returns the headers of these layers that no source of the same name includes first. For the
    others, own_header_first and the build, completed by standard_headers.py, show that they compile
    separately."""
    headers = (path for path in files(suffixes={".h"}) if path.parts[:2] == ("src", "gradwire"))
    return [h for h in headers
            if h.parts[2] in layers and not (ROOT / h.with_suffix(".cpp")).exists()]


def headers_that_need_others(build):
    """Returns 'header: errors' for each of our headers that does not compile separately."""
    compiler = Compiler(build)
    # A build without libtorch omits some layers.
    sources = "\n".join(command["file"] for command in compiler.commands)
    built = set(re.findall(r"/src/gradwire/(\w+)/", sources))
    headers = lone_headers(built)

    def check(header):
        return compiler.errors(header.relative_to("src"), header.parts[2])

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for header, errors in zip(headers, pool.map(check, headers)):
            if errors:
                yield f"{header}: {errors}"


def sources():
    return files(suffixes=CPP)
