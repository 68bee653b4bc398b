"""A build folder as tests see it: variables of its cache, and how it compiles."""

import json
import os
import re
import subprocess

# With these ccache supports precompiled headers, as in cmake/GradwireLayers.cmake.
SLOPPINESS = "pch_defines,time_macros,include_file_ctime,include_file_mtime"


def cached(build, variable):
    """Returns a variable of the build's cache; "" if it is not there."""
    text = (build / "CMakeCache.txt").read_text()
    found = re.search(rf"^{variable}:\w+=(.*)$", text, re.MULTILINE)
    return found.group(1) if found else ""


def compile_commands(build):
    """Returns the entries of the compilation database, whose commands do not name ccache."""
    return json.loads((build / "compile_commands.json").read_text())


def compile_cached(build, command, folder):
    """Runs a compiler's command in the folder, through ccache if the build uses it. ccache finds a
    result again if source and options have the same names. Returns the finished process."""
    launcher = [cached(build, "CCACHE_PROGRAM")]
    if not launcher[0].startswith("/"):
        launcher = []
    return subprocess.run([*launcher, *map(str, command)], text=True, cwd=folder,
                          env={**os.environ, "CCACHE_SLOPPINESS": SLOPPINESS},
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
