"""The package itself: its stubs, its program, and the wheel made of the build folder."""

import ast
import inspect
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
import zipfile

import gradwire
from gradwire import _build, _check, _core, hooks, program

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def run(*command, **options):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          timeout=200, check=False, **options)


def stub(name):
    """{function: names of its parameters} and {class: names of its members} of a stub."""
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

    def test_everything_public_is_described(self):
        for thing in (gradwire, hooks, *(getattr(gradwire, name) for name in gradwire.__all__),
                      *(getattr(hooks, name) for name in stub("hooks")[0])):
            self.assertTrue(inspect.getdoc(thing), thing)


class Release(unittest.TestCase):
    def test_another_pytorch_is_refused(self):
        with unittest.mock.patch.object(_build, "TORCH", "2.9.1"):
            with self.assertRaisesRegex(ImportError, "built with PyTorch 2.9.1, and here.*"
                                                     "install torch==2.9.1, or build"):
                _check.check_torch()
        _check.check_torch()


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

    def test_errors_are_the_programs_words(self):
        with self.assertRaisesRegex(RuntimeError, "(?i)rank|seconds"):
            gradwire.probe(seconds=-1)
        with self.assertRaisesRegex(RuntimeError, "."):
            program.output_of(["no-such-command"])

    def test_probe(self):
        self.assertIn("hosts", gradwire.probe(ranks=2, seconds=0.02))


@unittest.skipUnless("GRADWIRE_BUILD" in os.environ, "needs a build folder that is finished")
class Wheel(unittest.TestCase):
    def test_wheel(self):
        with tempfile.TemporaryDirectory() as folder:
            made = run(sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps",
                       "--disable-pip-version-check", "-w", folder, "-C", f"build-dir={folder}/b",
                       "-C", f"cmake.define.GRADWIRE_PREBUILT={os.environ['GRADWIRE_BUILD']}", ROOT)
            self.assertEqual(made.returncode, 0, made.stdout + made.stderr)
            wheel, = pathlib.Path(folder).glob("*.whl")
            release = _check.release(_build.TORCH)
            self.assertIn(f"{gradwire.__version__}+torch{release}-cp", wheel.name)
            self.assertNotIn("none-any", wheel.name)
            site = pathlib.Path(folder) / "site"
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(site)
                names = archive.namelist()
            metadata, = site.glob("*.dist-info/METADATA")
            self.assertIn(f"Requires-Dist: torch=={release}", metadata.read_text())
            for needed in ("gradwire/bin/gradwire", "gradwire/py.typed", "gradwire/_core.pyi"):
                self.assertIn(needed, names)
            self.assertEqual(sum(name.endswith(".so") for name in names), 1, names)
            self.check_import(site)

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
        release = _check.release(_build.TORCH)
        self.assertEqual(gradwire_metadata.dynamic_metadata("version"),
                         f"{_build.VERSION}+torch{release}")
        self.assertEqual(gradwire_metadata.dynamic_metadata("dependencies"), [f"torch=={release}"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
