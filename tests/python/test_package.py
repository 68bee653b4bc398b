"""The package itself: its stubs, its program, its source package and the wheel built from it."""

import ast
import importlib
import importlib.machinery
import inspect
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import textwrap
import unittest
import unittest.mock
import zipfile

import torch.distributed as dist
from torch.distributed import distributed_c10d

import gradwire
from gradwire import _build, _check, _core, backend, hooks

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def run(*command, **options):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          timeout=200, check=False, **options)


def stub(name):
    """Returns {function: parameter names} and {class: member names} of a stub."""
    functions, classes = {}, {}
    for node in ast.parse((ROOT / f"python/gradwire/{name}.pyi").read_text()).body:
        if isinstance(node, ast.FunctionDef):
            parameters = node.args.args + node.args.kwonlyargs
            functions[node.name] = [parameter.arg for parameter in parameters]
        elif isinstance(node, ast.ClassDef):
            classes[node.name] = {
                member.name if isinstance(member, ast.FunctionDef) else member.target.id
                for member in node.body if not isinstance(member, ast.Expr)}
    return functions, classes


class Stubs(unittest.TestCase):
    def test_functions_have_the_parameters_of_their_stubs(self):
        for name, module in (("__init__", gradwire), ("hooks", hooks)):
            for function, parameters in stub(name)[0].items():
                real = inspect.signature(getattr(module, function)).parameters.values()
                names = [p.name for p in real if p.kind != inspect.Parameter.VAR_KEYWORD]
                if function != "Options":
                    self.assertEqual(names, parameters, function)

    def test_options_are_those_of_the_stub(self):
        from gradwire.backend import _NAMES
        self.assertEqual(list(_NAMES), stub("__init__")[0]["Options"])
        self.assertLessEqual(set(_NAMES), stub("_core")[1]["Options"])

    def test_classes_have_the_members_of_their_stubs(self):
        functions, classes = stub("_core")
        for name, members in classes.items():
            for member in members:
                self.assertTrue(hasattr(getattr(_core, name), member), f"{name}.{member}")
        for name in functions:
            self.assertTrue(hasattr(_core, name), name)

    def test_what_has_no_stub_has_annotations(self):
        for name in ("backend", "barriers", "buckets", "checkpoint", "pipeline", "program",
                     "served", "served_embedding", "serving", "shard_optimizers", "tools",
                     "tracing"):
            module = importlib.import_module(f"gradwire.{name}")
            classes = inspect.getmembers(module, inspect.isclass)
            for scope in [module, *(c for _, c in classes if c.__module__ == module.__name__)]:
                for function, code in inspect.getmembers(scope, inspect.isfunction):
                    if code.__module__ != module.__name__:
                        continue
                    if inspect.unwrap(code).__code__.co_filename != module.__file__:
                        continue  # Made by a decorator.
                    signature = inspect.signature(code)
                    self.assertIsNot(signature.return_annotation, signature.empty, function)
                    for parameter in signature.parameters.values():
                        if parameter.name != "self":
                            self.assertIsNot(parameter.annotation, parameter.empty, function)

    def test_what_is_not_python_is_described_in_its_stub(self):
        for node in ast.walk(ast.parse((ROOT / "python/gradwire/_core.pyi").read_text())):
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name != "__init__":
                self.assertTrue(ast.get_docstring(node), node.name)

    def test_everything_public_is_described(self):
        for thing in (gradwire, hooks, *(getattr(gradwire, name) for name in gradwire.__all__),
                      *(getattr(hooks, name) for name in stub("hooks")[0])):
            self.assertTrue(inspect.getdoc(thing), thing)


class Release(unittest.TestCase):
    def package(self, *releases, suffix=importlib.machinery.EXTENSION_SUFFIXES[0]):
        """Returns the folder of a package with modules for these releases."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        for release in releases:
            module = pathlib.Path(folder.name, "_torch_" + release.replace(".", "_"))
            module.mkdir()
            (module / f"_core{suffix}").touch()
        return pathlib.Path(folder.name)

    def test_the_module_of_the_installed_pytorch_is_taken(self):
        package = self.package("2.9", "2.13", "2.15")
        for torch, folder in (("2.13.0+cpu", "_torch_2_13"), ("2.13.99+cu999", "_torch_2_13"),
                              ("2.15.0", "_torch_2_15"), ("2.9.1", "_torch_2_9")):
            with unittest.mock.patch("torch.__version__", torch):
                self.assertEqual(_check.module_folder(package), str(package / folder))

    def test_another_pytorch_is_refused(self):
        package = self.package("2.9", "2.10", "2.15")
        with unittest.mock.patch("torch.__version__", "2.14.1+cu130"):
            with self.assertRaisesRegex(
                    ImportError, r"built for PyTorch 2.9, 2.10 and 2.15, but PyTorch 2.14.1\+cu130 "
                                 r"is installed: install 'torch==2.15[.][*]', or a newer gradwire, "
                                 "or rebuild") as caught:
                _check.module_folder(package)
            # By name, pip would install the index's version.
            self.assertRegex(str(caught.exception), r"pip install [^:]* \. in its source folder")

    def test_another_python_is_refused(self):
        with self.assertRaisesRegex(ImportError, "built for another version of Python: rebuild it"):
            _check.module_folder(self.package("2.13", suffix=".cpython-39-x86_64-linux-gnu.so"))

    def test_torchcomms_that_takes_every_backend_is_refused(self):
        taken = {"_use_torchcomms_enabled": lambda: True}
        with unittest.mock.patch.multiple(distributed_c10d, create=True, **taken):
            if hasattr(distributed_c10d, "_torchcomms_handles_backend"):  # 2.14 and newer.
                backend._refuse_torchcomms()
            else:
                with self.assertRaisesRegex(RuntimeError, "TORCH_DISTRIBUTED_USE_TORCHCOMMS=1 .*"
                                                          "unset the variable"):
                    backend._refuse_torchcomms()
        backend._refuse_torchcomms()

    def test_a_job_with_a_secret_does_not_start_in_an_open_store(self):
        """A backend that the entry point has loaded."""
        variables = {"GRADWIRE_SECRET": "s" * 32, "RANK": "0", "WORLD_SIZE": "1",
                     "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
        store = dist.TCPStore("127.0.0.1", 0, 1, True)
        with unittest.mock.patch.object(backend, "_was_loaded", False):
            backend.load()
            with unittest.mock.patch.dict(os.environ, variables):
                with self.assertRaisesRegex(RuntimeError, 'admits anyone: add "import gradwire"'):
                    dist.init_process_group("gradwire", store=store, rank=0, world_size=1)
            dist.init_process_group("gradwire", store=store, rank=0, world_size=1)
            dist.destroy_process_group()


class Import(unittest.TestCase):
    def test_pytorch_is_adapted_when_a_group_is_created(self):
        code = textwrap.dedent("""
            import torch.distributed as dist
            from torch.nn.parallel import DistributedDataParallel

            def functions():
                return DistributedDataParallel.__init__, dist.monitored_barrier

            before = functions()
            import gradwire
            for backend in ("gloo", "gradwire"):
                assert functions() == before, backend
                dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
                changed = [a is not b for a, b in zip(before, functions())]
                assert changed == [backend == "gradwire"] * 2, (backend, changed)
                dist.destroy_process_group()
        """)
        done = run(sys.executable, "-c", code)
        self.assertEqual(done.returncode, 0, done.stderr)


class Program(unittest.TestCase):
    def test_python_m_gradwire_is_the_program(self):
        done = run(sys.executable, "-m", "gradwire", "--version")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(gradwire.__version__, done.stdout)

    def test_run_starts_ranks_that_find_each_other(self):
        code = ("import gradwire, torch, torch.distributed as dist\n"
                "dist.init_process_group('gradwire')\n"
                "t = torch.tensor([dist.get_rank() + 1.0]); dist.all_reduce(t); print(t.item())\n"
                "dist.destroy_process_group()\n")
        done = run(sys.executable, "-m", "gradwire", "run", "-n", "2", sys.executable, "-c", code)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count("3.0"), 2, done.stdout)


class Tools(unittest.TestCase):
    """`plan` compared with textbook formulas, `probe` with the command's own file."""

    def test_plan_has_the_ladder_of_the_case_study(self):
        measured = {"model": "resnet50", "nodes": 4, "step_ms": 234, "comm_ms": 106,
                    "overlap": "none"}
        rungs = [({}, 234, 106), ({"codec": "bf16"}, 234, 53),
                 ({"codec": "bf16", "accumulate": 2}, 468, 53)]
        for options, computing, communicating in rungs:
            plan = gradwire.plan(**measured, **options)
            self.assertAlmostEqual(plan["eta"], computing / (computing + communicating), 3)
            self.assertAlmostEqual(plan["t_c_ms"], communicating, 1)

    def test_plan_counts_bytes_as_the_formulas_do(self):
        plan = gradwire.plan(model="resnet50", nodes=8, algorithm="ring", devices=None)
        parameters = 25557032  # The published number.
        self.assertEqual(plan["parameters"], parameters)
        self.assertAlmostEqual(plan["wire_bytes"], 2 * 7 / 8 * 4 * parameters, 0)
        psi, ranks = 7.5e9, 64  # ZeRO's paper, K = 12.
        plan = gradwire.plan(params="7.5B", nodes=ranks, device="h100", precision="mixed",
                             zero_stage=2)
        truth = [16 * psi, 4 * psi + 12 * psi / ranks, 2 * psi + 14 * psi / ranks, 16 * psi / ranks]
        for bytes_of_stage, expected in zip(plan["zero_state_bytes"], truth, strict=True):
            self.assertAlmostEqual(bytes_of_stage, expected, 0)
        self.assertEqual(plan["strategy"]["zero_stage"], 2)

    def test_plan_searches_and_sweeps(self):
        self.assertIn("parallel", gradwire.plan(model="resnet50", nodes=4, search=True))
        curves = gradwire.plan(sweep="nodes=2..8", algorithms="ring,tree")
        self.assertEqual(curves["nodes"], [2, 4, 8])
        self.assertIn("ring", {line["algorithm"] for line in curves["lines"]})

    def test_errors_are_the_programs_words(self):
        with self.assertRaisesRegex(RuntimeError, "did you mean .resnet50"):
            gradwire.plan(model="resnet5")
        with self.assertRaisesRegex(RuntimeError, "--no-such-option"):
            gradwire.plan(no_such_option=True)
        with self.assertRaisesRegex(RuntimeError, "(?i)rank|seconds"):
            gradwire.probe(seconds=-1)

    def test_probe(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "topology.json"
            measured = gradwire.probe(file, ranks=2, seconds=0.02)
            self.assertEqual(json.loads(file.read_text()), measured)
        self.assertEqual(sum(host["ranks"] for host in measured["hosts"]), 2)


@unittest.skipUnless("GRADWIRE_BUILD" in os.environ, "needs a build folder that is finished")
class Packages(unittest.TestCase):
    """The source package, and a wheel built from it and from the build folder's binaries."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def source(self):
        """Returns the source package's folder."""
        code = f"import scikit_build_core.build as b; b.build_sdist({str(self.folder)!r})"
        made = run(sys.executable, "-c", code, cwd=ROOT)
        self.assertEqual(made.returncode, 0, made.stdout + made.stderr)
        archive, = self.folder.glob("*.tar.gz")
        with tarfile.open(archive) as tar:
            tar.extractall(self.folder)
        return self.folder / archive.name.removesuffix(".tar.gz")

    def test_source_has_what_a_build_needs(self):
        source = self.source()
        for folder in ("src", "cmake", "python/core", "python/gradwire", "python/build"):
            for file in (ROOT / folder).rglob("*.*"):
                if "__pycache__" not in file.parts:
                    self.assertTrue((source / file.relative_to(ROOT)).is_file(), file)
        configured = run("cmake", "-S", source, "-B", self.folder / "b", "-G", "Ninja",
                         "-DSKBUILD=2", "-DSKBUILD_SCRIPTS_DIR=scripts", "-DGRADWIRE_TESTS=OFF",
                         f"-DGRADWIRE_PYTHON={sys.executable}")
        self.assertEqual(configured.returncode, 0, configured.stdout + configured.stderr)

    def wheel(self, *options):
        """Returns the wheel that pip builds from the source package."""
        made = run(sys.executable, "-m", "pip", "wheel", *options, "--no-deps",
                   "--disable-pip-version-check", "-w", self.folder,
                   # -C requires pip 23.1; Debian 12 has 23.0.1.
                   "--config-settings=cmake.define.GRADWIRE_PREBUILT="
                   + os.environ["GRADWIRE_BUILD"],
                   self.source())
        self.assertEqual(made.returncode, 0, made.stdout + made.stderr)
        wheel, = self.folder.glob("*.whl")
        return wheel

    def test_isolated_build_is_for_the_pytorch_that_is_there(self):
        """The PyTorch that pip hides from the build, and would download again."""
        self.assertIn(f"gradwire-{gradwire.__version__}-cp", self.wheel().name)

    def test_wheel(self):
        wheel = self.wheel("--no-build-isolation")
        self.assertIn(f"gradwire-{gradwire.__version__}-cp", wheel.name)
        self.assertNotIn("none-any", wheel.name)
        site = self.folder / "site"
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)
            names = archive.namelist()
        metadata, = site.glob("*.dist-info/METADATA")
        self.assertIn("Requires-Dist: torch>=2.11\n", metadata.read_text())
        entries, = site.glob("*.dist-info/entry_points.txt")
        self.assertIn("[torch.distributed.backends]\ngradwire = gradwire.backend:load\n",
                      entries.read_text().replace("gradwire=", "gradwire = "))
        for needed in ("gradwire/bin/gradwire", "gradwire/py.typed", "gradwire/_core.pyi"):
            self.assertIn(needed, names)
        self.assertEqual(sum("/_core." in name and name.endswith(".so") for name in names), 1)
        head, _, description = metadata.read_text().partition("\n\n")
        for field in ("Author", "Classifier", "Keywords", "License", "Project-URL"):
            self.assertIn(f"\n{field}: ", head)
        # PyPI's page has no files beside it.
        self.assertEqual(re.findall(r"\]\((?!https?:|#)[^)]*", description), [])
        self.check_libraries(site)
        self.check_command(site)
        self.check_import(site)

    def test_source_has_what_its_readme_links_to(self):
        source = self.source()
        links = re.findall(r"\]\(([^)#:]+)", (source / "README.md").read_text())
        self.assertGreater(len(links), 10)
        for link in links:
            self.assertTrue((source / link).exists(), link)

    def check_libraries(self, site):
        """Our shared library is that of the package, and nothing is missing besides libtorch."""
        inside = [p for p in site.glob("gradwire/**/*") if p.is_file()
                  and p.read_bytes()[:4] == b"\x7fELF"]
        # The module, the library, two programs. MPI's libraries are there if MPI was.
        self.assertEqual(sum("libgradwire-mpi" not in path.name for path in inside), 4, inside)
        for path in inside:
            used = run("ldd", path).stdout
            missing = re.findall(r"(\S+) => not found", used)
            self.assertEqual([name for name in missing if not re.match("lib(torch|c10)", name)], [])
            for found in re.findall(r"libgradwire.so => (\S+)", used):
                self.assertEqual(pathlib.Path(found).resolve().parent, site / "gradwire/lib")

    def check_command(self, site):
        """The command starts the program without loading PyTorch first."""
        command, = site.glob("*.data/scripts/gradwire")
        self.assertTrue(command.read_text().startswith("#!python"))
        (self.folder / "none").mkdir()
        (self.folder / "none/torch.py").write_text("raise ImportError('not to be imported')")
        environment = {**os.environ, "PYTHONPATH": f"{self.folder}/none:{site}"}
        environment.pop("GRADWIRE_PROGRAM", None)
        (site / "gradwire/bin/gradwire").chmod(0o755)  # zipfile drops the mode.
        command.chmod(0o755)
        for named in ({}, {"GRADWIRE_PROGRAM": str(command)}):  # It does not start itself.
            done = run(sys.executable, command, "--version", env=environment | named, cwd=site)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(gradwire.__version__, done.stdout)

    def check_import(self, site):
        code = ("import gradwire, torch.distributed as dist, torch; "
                "dist.init_process_group('gradwire', store=dist.HashStore(), rank=0, "
                "world_size=1); "
                "t = torch.ones(2); dist.all_reduce(t); print(gradwire.__file__)")
        environment = {**os.environ, "PYTHONPATH": str(site)}
        done = run(sys.executable, "-c", code, env=environment, cwd=site)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(done.stdout.startswith(str(site)), done.stdout)


class SourcePackage(unittest.TestCase):
    def test_metadata(self):
        sys.path.insert(0, str(ROOT / "python/build"))
        import gradwire_metadata
        self.assertEqual(gradwire_metadata.dynamic_metadata("version"), _build.VERSION)
        self.assertEqual(gradwire_metadata.dynamic_metadata("dependencies"), ["torch>=2.11"])
        with unittest.mock.patch.object(gradwire_metadata, "torch_release", lambda: "2.9.1"):
            with self.assertRaisesRegex(RuntimeError, "2.11 or newer, but this Python has PyTorch "
                                                      "2.9.1: pip install --upgrade torch"):
                gradwire_metadata.dynamic_metadata("dependencies")


if __name__ == "__main__":
    unittest.main(verbosity=2)
