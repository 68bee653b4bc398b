"""What another project sees: find_package(gradwire) in the build tree and in an install tree.

usage: test_packaging.py BUILD_FOLDER [unittest arguments]
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
CORE_LAYERS = ["base", "topology", "schedule", "net", "comm", "report"]
TORCH_SYMBOL = re.compile(r"\b(at|c10|c10d|torch)::")


def run(*command):
    """The output of a command; a failure shows it whole."""
    done = subprocess.run([str(word) for word in command], text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        raise AssertionError(f"{command} exited with {done.returncode}:\n{done.stdout}")
    return done.stdout


def torch_symbols(library):
    """The symbols of libtorch that a static library needs."""
    undefined = run("nm", "--demangle", "--undefined-only", library)
    return [line.strip() for line in undefined.splitlines() if TORCH_SYMBOL.search(line)]


def cached(variable):
    """What the build's own cache says of a variable."""
    text = (BUILD / "CMakeCache.txt").read_text()
    found = re.search(rf"^{variable}:\w+=(.*)$", text, re.MULTILINE)
    return found.group(1) if found else ""


class Packaging(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="gradwire-packaging-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def installed(self):
        run("cmake", "--install", BUILD, "--prefix", self.folder / "installed")
        return self.folder / "installed"

    def consumer(self, project, package, *arguments):
        """Configures and builds a project against a package; returns its program."""
        build = self.folder / "consumer"
        configured = run(
            "cmake", "-S", HERE / project, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
            f"-DCMAKE_CXX_COMPILER_LAUNCHER={cached('CCACHE_PROGRAM')}",
            f"-DCMAKE_PREFIX_PATH={package}", *arguments)
        self.assertNotRegex(configured, r"CMake (Warning|Deprecation).*gradwire")
        run("cmake", "--build", build)
        found = (build / "CMakeCache.txt").read_text()
        self.assertIn(f"gradwire_DIR:PATH={package}", found)
        return build / "consumer"


class Core(Packaging):
    def check(self, package):
        program = self.consumer("core", package)
        self.assertEqual(run(program), "1 of 1: 1 2 3\n")
        libraries = run("ldd", program)
        self.assertNotRegex(libraries, r"libtorch|libc10")
        cache = (program.parent / "CMakeCache.txt").read_text()
        self.assertNotIn("Torch_DIR", cache)

    def test_from_the_build_tree(self):
        self.check(BUILD)

    def test_from_an_install_tree(self):
        self.check(self.installed())


class Torch(Packaging):
    def check(self, package, *arguments):
        program = self.consumer("torch", package, f"-DSOURCE={HERE}/torch/main.cpp", *arguments)
        self.assertEqual(run(program), "sum 6\n")
        self.assertRegex(run("ldd", program), r"libtorch")

    def test_from_the_build_tree(self):
        self.check(BUILD)

    def test_from_an_install_tree_beside_torch(self):
        torch = pathlib.Path(cached("GRADWIRE_TORCH_CMAKE") or cached("Torch_DIR") + "/..")
        arguments = [f"-DTorch_DIR={torch}/Torch", "-DTORCH_FIRST=ON"]
        if (torch / "../../lib/libtorch_cuda.so").exists():
            arguments = []  # Its own find_package wants a CUDA compiler.
        self.check(self.installed(), *arguments)

    def test_the_example_builds_against_an_install_tree(self):
        program = self.consumer("torch", self.installed(), f"-DSOURCE={ROOT}/examples/mnist.cpp")
        self.assertRegex(run("ldd", program), r"libtorch")


class Installed(Packaging):
    def test_has_programs_headers_and_licence(self):
        prefix = self.installed()
        self.assertRegex(run(prefix / "bin/gradwire", "--help"), "schedule")
        self.assertTrue((prefix / "include/gradwire/comm/communicator.h").is_file())
        self.assertTrue((prefix / "share/doc/gradwire/LICENSE").is_file())

    def test_headers_are_all_there(self):
        included = self.installed() / "include"
        for layer in CORE_LAYERS:
            for header in (ROOT / "src/gradwire" / layer).rglob("*.h"):
                name = header.relative_to(ROOT / "src")
                self.assertTrue((included / name).is_file(), f"{name} was not installed")


class Symbols(unittest.TestCase):
    def test_core_layers_need_nothing_of_torch(self):
        for layer in CORE_LAYERS:
            self.assertEqual(torch_symbols(BUILD / f"libgradwire_{layer}.a"), [], layer)

    def test_the_check_finds_torch_where_it_is(self):
        library = BUILD / "libgradwire_torch.a"
        if cached("GRADWIRE_TORCH") == "ON":
            self.assertNotEqual(torch_symbols(library), [])
        else:
            self.assertFalse(library.exists())


if __name__ == "__main__":
    os.chdir(ROOT)
    unittest.main(verbosity=2)
