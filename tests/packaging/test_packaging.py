"""gradwire as seen by other projects: find_package(gradwire) in the build and install trees.

usage: test_packaging.py BUILD_FOLDER [unittest arguments]
"""

import os
import pathlib
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "tests/support"))
import build_tree  # noqa: E402

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
CORE_LAYERS = ["base", "topology", "schedule", "net", "engine", "bootstrap", "mpi", "comm", "trace",
               "report"]
TORCH_SYMBOL = re.compile(r"\b(at|c10|c10d|torch)::")


def run(*command):
    """Returns the output of a command; a failure shows all of it."""
    done = subprocess.run([str(word) for word in command], text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        raise AssertionError(f"{command} exited with {done.returncode}:\n{done.stdout}")
    return done.stdout


def torch_symbols(library):
    """Returns the undefined symbols of libtorch in a static library."""
    undefined = run("nm", "--demangle", "--undefined-only", library)
    return [line.strip() for line in undefined.splitlines() if TORCH_SYMBOL.search(line)]


def write_images(prefix, count):
    """Writes a data set of noise in the format of Fashion-MNIST."""
    header = struct.pack(">iiii", 0x803, count, 28, 28)
    pixels = random.Random(1).randbytes(count * 28 * 28)
    pathlib.Path(f"{prefix}-images-idx3-ubyte").write_bytes(header + pixels)
    labels = bytes(i % 10 for i in range(count))
    pathlib.Path(f"{prefix}-labels-idx1-ubyte").write_bytes(
        struct.pack(">ii", 0x801, count) + labels)


def torch_cmake():
    """Returns the folder for find_package(Torch)."""
    return cached("GRADWIRE_TORCH_CMAKE") or cached("Torch_DIR") + "/.."


def cached(variable):
    return build_tree.cached(BUILD, variable)


class Packaging(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="gradwire-packaging-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def installed(self):
        run(ROOT / "scripts/install.sh", "copy", BUILD, self.folder / "installed")
        return self.folder / "installed"

    def consumer(self, project, package, *arguments):
        """Configures and builds a project against a package; returns the folder of its programs."""
        build = self.folder / "consumer"
        configured = run(  # Not optimized: the test is not about speed.
            "cmake", "-S", project, "-B", build, "-G", "Ninja",
            f"-DCMAKE_CXX_COMPILER_LAUNCHER={cached('CCACHE_PROGRAM')}",
            f"-DCMAKE_PREFIX_PATH={package};{torch_cmake()}", *arguments)
        # Our files only; the path of PyTorch's files may contain gradwire, too.
        ours = r"(gradwire-|Gradwire)[\w-]*\.cmake"
        self.assertNotRegex(configured, r"CMake (Warning|Deprecation)[^\n]*" + ours)
        run("cmake", "--build", build)
        found = (build / "CMakeCache.txt").read_text()
        self.assertIn(f"gradwire_DIR:PATH={package}", found)
        return build


class Consumers(Packaging):
    """Cases that compile. Their folders have the same names in every run, so that ccache finds
    what it has."""

    def setUp(self):
        self.folder = BUILD / "packaging" / self.id()
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        self.addCleanup(shutil.rmtree, self.folder)


class Core(Consumers):
    def check(self, package):
        program = self.consumer(HERE / "core", package) / "consumer"
        self.assertEqual(run(program), "1 of 1: 1 2 3\n")
        libraries = run("ldd", program)
        self.assertNotRegex(libraries, r"libtorch|libc10")
        cache = (program.parent / "CMakeCache.txt").read_text()
        self.assertNotIn("Torch_DIR", cache)

    def test_from_the_build_tree(self):
        self.check(BUILD)

    def test_from_an_install_tree(self):
        self.check(self.installed())


class Torch(Consumers):
    def test_from_the_build_tree_without_a_word_about_torch(self):
        folder = self.consumer(HERE / "torch", BUILD, f"-DCMAKE_PREFIX_PATH={BUILD}")
        program = folder / "consumer"
        self.assertEqual(run(program), "sum 6\n")
        self.assertRegex(run("ldd", program), r"libtorch")

    def test_an_old_pytorch_is_refused_before_anything_is_compiled(self):
        torch = self.folder / "torch/share/cmake/Torch"
        torch.mkdir(parents=True)
        (torch / "TorchConfigVersion.cmake").write_text('set(PACKAGE_VERSION "2.10.1")\n')
        # CMake wraps the sentence at any blank.
        with self.assertRaisesRegex(AssertionError, r"(?s)PyTorch\s+2\.10\.1\s.*too\s+old.*needs"
                                                    r"\s+PyTorch\s+2\.11\s+or\s+newer"):
            run("cmake", "-S", ROOT, "-B", self.folder / "build", "-G", "Ninja",
                f"-DTorch_DIR={torch}", "-DGRADWIRE_TESTS=OFF")

    def test_all_missing_packages_are_named_in_one_message(self):
        (self.folder / "empty").mkdir()
        with self.assertRaises(AssertionError) as caught:
            run("cmake", "-S", ROOT, "-B", self.folder / "build", "-G", "Ninja",
                f"-DCMAKE_MAKE_PROGRAM={shutil.which('ninja')}",
                f"-DCMAKE_FIND_ROOT_PATH={self.folder}/empty",
                *(f"-DCMAKE_FIND_ROOT_PATH_MODE_{kind}=ONLY" for kind in ("INCLUDE", "PROGRAM")))
        named = re.search(r"sudo apt-get install (.*)", str(caught.exception)).group(1).split()
        self.assertIn("g++", named)
        setup = (ROOT / "scripts/setup.sh").read_text()
        installed = re.search(r'\[build\]="([^"]*)"', setup).group(1).split()
        self.assertEqual(set(named), {name for name in installed
                                      if name == "g++" or name.endswith("-dev")})

    def test_the_examples_from_an_install_tree(self):
        installed = self.installed()
        programs = self.consumer(ROOT / "examples", installed)
        write_images(self.folder / "train", 256)
        write_images(self.folder / "t10k", 64)
        output = run(installed / "bin/gradwire", "run", "-n", "2", "--", programs / "mnist",
                     self.folder)
        self.assertRegex(output, r"epoch 2 +step +0 +loss \d")
        output = run("env", "-C", self.folder, programs / "federation", "2", self.folder)
        self.assertRegex(output, r"round 2  used \d+ of 13  up \d+ bytes  accuracy \d+\.\d\d %\n"
                                 r"fairness: Jain's index of how often clients counted 0\.\d\d,")
        model = (self.folder / "federation.safetensors").read_bytes()
        self.assertRegex(model, rb'"conv.weight":{[^}]*"shape":\[8,1,5,5\]}')

    def test_the_installed_program_trains(self):
        prefix = self.installed()
        for part in ("train", "t10k"):
            write_images(self.folder / part, 64)
        (self.folder / "c.json").write_text(
            '{"model": {"name": "mlp", "hidden": 4}, "batch_size": 64, "epochs": 1}')
        output = run(prefix / "bin/gradwire", "train", self.folder / "c.json", "-n", "2",
                     "--data", self.folder, "--output", self.folder / "out")
        self.assertIn("Trained on 2 ranks: 1 step", output)

    def test_no_program_looks_for_libraries_in_the_current_folder(self):
        prefix = self.installed()
        modules = [*(BUILD / "python/gradwire").glob("_torch_*/_core*.so"),
                   BUILD / "lib/libgradwire.so"]
        self.assertGreaterEqual(len(modules), 2)
        for folder in (BUILD / "bin", prefix / "bin"):
            modules += [folder / "gradwire", folder / "gradwire-torch"]
        for module in modules:
            dynamic = run("readelf", "--dynamic", module)
            for path in re.findall(r"R(?:UN)?PATH.*\[(.*)\]", dynamic):
                for element in path.split(":"):
                    self.assertRegex(element, r"^(/|\$ORIGIN)", f"{module}: [{path}]")


class Installed(Consumers):
    def test_has_programs_headers_and_licence(self):
        prefix = self.installed()
        self.assertRegex(run(prefix / "bin/gradwire", "--help"), "schedule")
        self.assertTrue((prefix / "include/gradwire/comm/communicator.h").is_file())
        self.assertTrue((prefix / "share/doc/gradwire/LICENSE").is_file())

    def public_headers(self, variable):
        """The headers of a list in cmake/GradwireInstall.cmake."""
        text = (ROOT / "cmake/GradwireInstall.cmake").read_text()
        return re.search(rf"set\({variable}\s([^)]*)\)", text).group(1).split()

    def check_headers(self, consumer, variable):
        """Compiles a program that includes every public header, against the installed ones."""
        shutil.copytree(HERE / consumer, self.folder / "project")
        (self.folder / "project/main.cpp").write_text(
            "".join(f"#include <gradwire/{name}>\n" for name in self.public_headers(variable))
            + "int main() {}\n")
        self.consumer(self.folder / "project", self.installed())

    def test_public_headers_of_core_compile(self):
        self.check_headers("core", "GRADWIRE_CORE_HEADERS")

    def test_public_headers_with_libtorch_compile(self):
        self.check_headers("torch", "GRADWIRE_TORCH_HEADERS")

    def test_has_only_public_headers_and_those_that_they_include(self):
        include = self.installed() / "include"
        there = {str(path.relative_to(include)) for path in include.rglob("*.h")}
        needed = set()
        public = {"gradwire/" + name for variable in ("GRADWIRE_CORE_HEADERS",
                                                      "GRADWIRE_TORCH_HEADERS")
                  for name in self.public_headers(variable)}
        waiting = set(public)
        while waiting:
            name = waiting.pop()
            needed.add(name)
            text = (ROOT / "src" / name).read_text()
            included = re.findall(r'^#include "(gradwire/[^"]+)"', text, re.MULTILINE)
            waiting |= set(included) - needed
        self.assertEqual(there, needed)
        self.assertLessEqual(len(there - public), 40, "public headers should need no internals")

    def test_docs_name_every_public_header(self):
        text = (ROOT / "docs/library.md").read_text()
        for variable in ("GRADWIRE_CORE_HEADERS", "GRADWIRE_TORCH_HEADERS"):
            for name in self.public_headers(variable):
                self.assertIn(f"`{name}`", text)


class InstallScript(Packaging):
    """`make install` as a user other than the one who built."""

    NOBODY = 65534

    def setUp(self):
        super().setUp()
        self.folder.chmod(0o755)
        (self.folder / "clone/scripts").mkdir(parents=True)
        self.script = self.folder / "clone/scripts/install.sh"
        shutil.copy(ROOT / "scripts/install.sh", self.script)

    def test_leaves_no_list_that_would_be_in_the_way(self):
        self.installed()
        self.assertFalse((BUILD / "install_manifest.txt").exists())

    def test_says_what_to_do_where_the_user_may_not_write(self):
        closed = self.folder / "closed"
        closed.mkdir(mode=0o555)
        as_user = ["setpriv", f"--reuid={self.NOBODY}", f"--regid={self.NOBODY}", "--clear-groups"]
        done = subprocess.run(
            [*(as_user if os.geteuid() == 0 else []), self.script, "prepare", closed / "a/b"],
            text=True, capture_output=True, stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn(f"may not write in {closed}", done.stderr)
        self.assertIn(f"sudo make install PREFIX={closed}/a/b", done.stderr)

    def test_builds_as_the_owner_of_the_folder(self):
        owner = os.geteuid()
        if owner == 0:
            owner = self.NOBODY
            os.chown(self.folder / "clone", owner, owner)
        self.assertEqual(run(self.script, "as-owner", "id", "-u"), f"{owner}\n")


class HostTests(Packaging):
    """scripts/host_tests.sh reports the tests that `make test` omits before anything else."""

    def chosen(self, user, sudo):
        for name, script in (("id", f"echo {user}"), ("sudo", f"exit {sudo}")):
            (self.folder / name).write_text(f"#!/bin/sh\n{script}\n")
            (self.folder / name).chmod(0o755)
        done = subprocess.run([ROOT / "scripts/host_tests.sh"], text=True, capture_output=True,
                              check=True, env={"PATH": f"{self.folder}:{os.environ['PATH']}"})
        return done.stdout.strip(), done.stderr

    def test_they_run_as_root_and_with_sudo(self):
        for user, sudo in ((0, 1), (1000, 0)):
            self.assertEqual(self.chosen(user, sudo), ("-DGRADWIRE_HOST_TESTS=ON", ""))

    def test_leaving_them_out_is_said(self):
        option, said = self.chosen(1000, 1)
        self.assertEqual(option, "-DGRADWIRE_HOST_TESTS=OFF")
        self.assertIn("leaving out the tests between network hosts", said)


class Symbols(unittest.TestCase):
    def test_the_shared_library_exports_only_our_names(self):
        exported = run("nm", "--demangle", "--dynamic", "--defined-only",
                       BUILD / "lib/libgradwire.so").splitlines()
        self.assertGreater(len(exported), 1000)
        self.assertEqual([line for line in exported if "gradwire" not in line], [])

    def test_modules_and_programs_take_the_layers_from_the_shared_library(self):
        layer = re.compile(r" [TtWV] gradwire::(comm|engine|net|schedule|plan|step|exchange)::")
        users = [BUILD / "bin/gradwire", *(BUILD / "bin").glob("gradwire-torch"),
                 *(BUILD / "python/gradwire").glob("_torch_*/_core*.so")]
        for user in users:
            defined = run("nm", "--demangle", "--defined-only", user).splitlines()
            functions = [line for line in defined if " T gradwire::" in line and layer.search(line)]
            self.assertEqual(functions, [], user)

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
