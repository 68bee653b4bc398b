"""Each rule finds a violation planted for it, and accepts correct text.

usage: test_rules.py BUILD_FOLDER [unittest arguments]
"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

import ambient
import cli_docs
import compile_rules
import doc_rules
import layers
import measured_docs
import standard_headers
import text_rules
import type_names
from banned_calls import BANS, banned_calls
from tree import code_of, files

BUILD = sys.argv.pop(1) if len(sys.argv) > 1 else "build"
LIBRARY = pathlib.PurePath("src/gradwire/comm/example.cpp")
HEADER = pathlib.PurePath("src/gradwire/comm/example.h")


def found(rule, text, path=LIBRARY):
    """Returns the lines in which a rule finds a violation."""
    return [line for line, _ in rule(path, text)]


class TextRules(unittest.TestCase):
    def test_whitespace(self):
        self.assertEqual(found(text_rules.whitespace, "a\nb \n\tc\nd"), [2, 3, 4])
        self.assertEqual(found(text_rules.whitespace, "a\n  b\n"), [])

    def test_left_overs(self):
        self.assertEqual(found(text_rules.left_overs, "a\n// TODO: b\n// FIXME\n"), [2, 3])
        self.assertEqual(found(text_rules.left_overs, "int todo;\n"), [])

    def test_line_length(self):
        self.assertEqual(found(text_rules.line_length, "x" * 101 + "\n" + "x" * 100 + "\n"), [1])

    def test_pragma_once(self):
        self.assertEqual(found(text_rules.pragma_once, "int a;\n", HEADER), [1])
        self.assertEqual(found(text_rules.pragma_once, "#pragma once\n", HEADER), [])

    def test_include_paths(self):
        self.assertEqual(found(text_rules.include_paths, '#include "example.h"\n'), [1])
        self.assertEqual(found(text_rules.include_paths, '#include "gradwire/comm/a.h"\n'), [])

    def test_comment_beginnings(self):
        text = "// Of a\n// What b\nint a;  ///< That c\n// Often\nint b;  // As d\n"
        self.assertEqual(found(text_rules.comment_beginnings, text), [1, 3, 5])
        script = pathlib.PurePath("tests/a.py")
        self.assertEqual(found(text_rules.comment_beginnings, '# Of\n\n# As a\n"""Of b"""\n',
                               script), [3, 4])
        text = "  int a;  ///< That it\n          ///< What c\n  /// Of d\n  /// As e\n"
        self.assertEqual(found(text_rules.comment_beginnings, text, HEADER), [1, 3])
        self.assertEqual(found(text_rules.comment_beginnings, 'x = 1  # What\n\n"""As b"""\n',
                               script), [3])

    def test_heavy_headers(self):
        text = "#include <nlohmann/json.hpp>\n#include <nlohmann/json_fwd.hpp>\n#include <regex>\n"
        self.assertEqual(found(text_rules.heavy_headers, text, HEADER), [1, 3])
        self.assertEqual(found(text_rules.heavy_headers, text, LIBRARY), [])

    def test_timed_assertions(self):
        test = pathlib.PurePath("tests/net/a_test.cpp")
        text = "EXPECT_LT(SteadyClock().now() - a, seconds(1));\nEXPECT_LT(clock.now(), b);\n"
        self.assertEqual(found(text_rules.timed_assertions, text, test), [1])
        text = "self.assertLess(time.monotonic() - a, 1)\n"
        self.assertEqual(found(text_rules.timed_assertions, text,
                               pathlib.PurePath("tests/python/test_a.py")), [1])

    def test_own_header_first(self):
        root = pathlib.Path(text_rules.__file__).parent.parent.parent
        path = pathlib.PurePath("src/gradwire/base/clock.cpp")
        own = '#include "gradwire/base/clock.h"\n'
        self.assertTrue((root / path.with_suffix(".h")).exists())
        self.assertEqual(found(text_rules.own_header_first, own + "#include <string>\n", path), [])
        self.assertEqual(found(text_rules.own_header_first, "#include <string>\n" + own, path), [1])

    def test_function_length(self):
        body = "    f();\n\n" * 33
        for head in ("void g(int a) {", "  bool h() const {", "A::A(int a)\n    : a_(a) {",
                     "TEST(A, B) {"):
            depth = " " * (len(head) - len(head.lstrip()))
            short, long = f"{head}\n{body}{depth}}}\n", f"{head}\n{body}{body}{depth}}}\n"
            self.assertEqual(found(text_rules.function_length, short), [], head)
            self.assertEqual(found(text_rules.function_length, long), [1], head)
        python = pathlib.PurePath("a.py")
        long = "def f():\n" + "  g()\n" * 70
        self.assertEqual(found(text_rules.function_length, long, python), [1])

    def test_a_namespace_is_no_function(self):
        text = "namespace a {\n" + "void f() {\n  g();\n}\n" * 40 + "}\n"
        self.assertEqual(found(text_rules.function_length, text), [])


class BannedCalls(unittest.TestCase):
    PLANTED = ["auto t = std::chrono::steady_clock::now();", "int r = std::rand();",
               'auto* v = std::getenv("A");', "std::this_thread::sleep_for(1s);",
               'std::printf("a");', 'snprintf(b, 3, "a");', "auto* p = new Thing(1);",
               "using namespace std;", "::connect(fd, a, n);",
               "enum class Part { idle, selecting, collecting, over };", "record_.used = 3;"]

    def test_each_is_found(self):
        self.assertEqual(len(self.PLANTED), len(BANS))
        for call in self.PLANTED:
            self.assertEqual(found(banned_calls, f"\n{call}\n"), [2], call)
        for call in ("delete p;", "delete[] p;", "srand(1);", "std::cout << 1;", "epoll_wait(e);",
                     "++round.record.asked;", "record.is_abandoned = true;"):
            self.assertEqual(found(banned_calls, call), [1], call)

    def test_what_only_looks_like_one_is_left_alone(self):
        for text in ("A(const A&) = delete;", "// a new thing", 'f("printf(");', "operand(1);",
                     "Communicator::connect(job);", "peer.send(1);", "this->connect();",
                     "renew(1);", "std::unique_ptr<A>(\n  new A(1));", "stream.recv(b);",
                     "using namespace std::chrono_literals;",
                     "communicator.sleep_forever();", "fmt::format(a);", "record.used == 3;",
                     "enum class Outcome { committed, abandoned };"):
            self.assertEqual(found(banned_calls, text), [], text)

    def test_each_has_its_place(self):
        for path, call in (("src/gradwire/base/clock.cpp", self.PLANTED[0]),
                           ("src/gradwire/bootstrap/job.cpp", self.PLANTED[2]),
                           ("src/gradwire/cli/run.cpp", self.PLANTED[4]),
                           ("src/gradwire/net/tcp/socket.cpp", self.PLANTED[8]),
                           ("src/gradwire/federated/round.h", self.PLANTED[9]),
                           ("src/gradwire/federated/round.cpp", self.PLANTED[10])):
            self.assertEqual(found(banned_calls, call, pathlib.PurePath(path)), [], path)


class Code(unittest.TestCase):
    def test_comments_and_strings_go_and_lines_stay(self):
        text = 'a; // b\n"c\\"d" /* e\nf */ g\nR"(h\ni)" 1\'000 \'j\'\n'
        code = code_of(text)
        self.assertEqual(code.count("\n"), text.count("\n"))
        for letter in "bcdefhij":
            self.assertNotIn(letter, code)
        self.assertIn("1'000", code)


class Layers(unittest.TestCase):
    ARCHITECTURE = ("| `base` | errors | |\n| `net` | frames | `base` |\n| `comm` | all | `net` |\n"
                    "| `torch` | rim | `comm` |\n| `cli` | commands | everything |\n")

    def setUp(self):
        self.uses = layers.table(self.ARCHITECTURE)

    def wrong(self, path, text):
        return [n for n, _ in layers.wrong_includes(pathlib.PurePath(path), text, self.uses)]

    def test_an_arrow_that_points_down(self):
        self.assertEqual(self.wrong("src/gradwire/net/a.h", '#include "gradwire/comm/b.h"\n'), [1])
        self.assertEqual(self.wrong("src/gradwire/comm/a.h", '#include "gradwire/base/b.h"\n'), [])

    def test_libtorch_below_the_rim(self):
        for header in ("torch/torch.h", "ATen/ATen.h", "c10/util/a.h"):
            self.assertEqual(self.wrong("src/gradwire/comm/a.h", f"#include <{header}>\n"), [1])
            self.assertEqual(self.wrong("src/gradwire/torch/a.h", f"#include <{header}>\n"), [])

    def test_modules_in_the_headers_of_the_training_host(self):
        texts = {"src/gradwire/host/a.h": '#include "gradwire/train/b.h"\n',
                 "src/gradwire/train/b.h": "#include <torch/types.h>\n"}
        begin = "src/gradwire/host/a.h"
        self.assertEqual(list(layers.module_includes(begin, texts.get)), [])
        for header in ("torch/torch.h", "torch/nn/module.h", "torch/optim.h"):
            texts["src/gradwire/train/b.h"] = f"#include <{header}>\n"
            self.assertEqual(list(layers.module_includes(begin, texts.get)),
                             ["src/gradwire/train/b.h"])

    def test_an_unknown_layer(self):
        self.assertEqual(self.wrong("src/gradwire/misc/a.h", "\n"), [1])

    def test_the_namespace_of_another_folder(self):
        def wrong(path, namespace):
            text = ("namespace gradwire::codec {\nclass A;\n}\n\n"
                    f"namespace {namespace} {{\n\nint b();\n\nnamespace {{\nint c;\n}}\n}}\n")
            return [n for n, _ in layers.wrong_namespaces(pathlib.PurePath(path), text)]

        for path, right in (("src/gradwire/net/a.h", "gradwire::net"),
                            ("src/gradwire/net/a.h", "gradwire::net::detail"),
                            ("src/gradwire/comm/a.h", "gradwire")):
            self.assertEqual(wrong(path, right), [])
            self.assertEqual(wrong(path, "gradwire::engine"), [5])
        self.assertEqual(wrong("src/gradwire/net/a.h", "gradwire"), [5])

    def test_cmake_that_says_otherwise(self):
        right = ("gradwire_layer(base)\ngradwire_layer(net QUICKLY USES base\n  ALONE a.cpp)\n"
                 "gradwire_layer(comm USES net)\n  gradwire_layer(torch TORCH USES comm)\n")
        self.assertEqual(list(layers.wrong_in_cmake(right, self.uses)), [])
        for wrong in (right.replace("comm USES net", "comm USES base net"),
                      right + "gradwire_layer(a)\n"):
            self.assertEqual(len(list(layers.wrong_in_cmake(wrong, self.uses))), 1)


class TypeNames(unittest.TestCase):
    def names(self, text):
        return list(type_names.definitions(text))

    def test_every_kind_of_type_is_seen(self):
        text = ("namespace a {\nclass B;\nclass B final : public C {\n  struct Nested {};\n};\n"
                "namespace b::c {\nstruct D {\n  int e = 1;\n};\n}\n"
                "enum class F : std::uint8_t { one, two };\nenum G { three };\n"
                "template <class T>\nunion H {\n};\nstruct alignas(64) I {};\n}\nstruct J {};\n")
        self.assertEqual(self.names(text), [(3, "a::B"), (7, "a::b::c::D"), (11, "a::F"),
                                            (12, "a::G"), (14, "a::H"), (16, "a::I"), (18, "J")])

    def test_what_is_no_definition_in_a_namespace(self):
        for text in ("namespace {\nstruct A {};\n}\n",
                     "namespace a {\nnamespace {\nstruct B {};\n}}",
                     "class A;\n", "struct A f() {\n}\n", "void f() {\n  struct A {};\n}\n",
                     "class A::B {\n};\n", "// struct A {};\n", "struct A<int> {\n};\n",
                     "template <class T>\nvoid f(class A a) {\n}\n", "#define A struct B {\n"):
            self.assertEqual(self.names(text), [], text)

    def violations(self, sources):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in sources.items():
                path = pathlib.Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            return list(type_names.violations(pathlib.Path(folder)))

    def test_two_of_one_name_in_one_program(self):
        one, other = "namespace a {\nstruct B {};\n}\n", "namespace a {\nclass B {};\n}\n"
        found = self.violations({"src/c.h": one, "src/d.cpp": other})
        self.assertEqual(len(found), 1)
        self.assertRegex(found[0], "^src/c.h:2, src/d.cpp:2: a::B ")
        self.assertTrue(self.violations({"src/c.h": one, "tests/e/d.cpp": other}))
        self.assertTrue(self.violations({"tests/e/c.h": one, "tests/e/d.cpp": other}))

    def test_other_namespaces_and_other_programs(self):
        one, other = "namespace a {\nstruct B {};\n}\n", "namespace c {\nstruct B {};\n}\n"
        self.assertEqual(self.violations({"src/c.h": one, "src/d.h": other}), [])
        self.assertEqual(self.violations({"tests/c/a.cpp": one, "tests/d/a.cpp": one}), [])


class Documents(unittest.TestCase):
    def test_links(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "there.md").write_text("# A heading here\n")
            text = ("[a](there.md) [b](gone.md)\n[c](https://example.org)\n"
                    "[d](there.md#a-heading-here)\n[e](there.md#none)\n```\n[f](gone.md)\n```\n")
            wrong = doc_rules.broken_links(pathlib.PurePath("docs.md"), text, root)
            self.assertEqual([line for line, _ in wrong], [1, 4])

    def test_names(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "src/gradwire/net").mkdir(parents=True)
            (root / "src/gradwire/net/frame.h").touch()
            text = ("`net/frame.h` `src/gradwire/net` `net/*.h`\n`net/gone.h`\n`gone.md`\n"
                    "`Schedule` `gradwire run` `all_reduce`\n`Gone`\n")
            wrong = doc_rules.names_nothing(text, {"Schedule"}, root)
            self.assertEqual([line for line, _ in wrong], [2, 3, 5])


class MeasuredDocuments(unittest.TestCase):
    def test_a_figure_that_was_not_measured(self):
        made = "a\n| 4 B | 83 us |\nb\n"
        for written, lines in ((made, []), (made.replace("83", "60"), [2]), (made + "c\n", [4]),
                               ("a\n", [2])):
            differing = measured_docs.differences("x.md", written, made)
            self.assertEqual([line for line, _ in differing], lines)

    def test_the_readmes_table_is_made_of_the_results(self):
        marks = f"before\n{measured_docs.readme_table.BEGIN}old\n"
        readme = marks + measured_docs.readme_table.END + "after\n"
        row = {"system": "gradwire", "collective": "all_reduce", "bytes": 4, "median_us": 7.5}
        made = measured_docs.readme_table.with_table(readme, {"links": {"1g": {"rows": [row]}}})
        self.assertIn("| 4 B, 4 hosts, 1 Gb/s | 7.5 us | - | - |", made)
        self.assertNotIn("old", made)
        self.assertTrue(made.startswith("before\n") and made.endswith("after\n"))
        with self.assertRaisesRegex(ValueError, "README.md lacks the line"):
            measured_docs.readme_table.with_table("no marks", {"links": {}})


class Commands(unittest.TestCase):
    DOCUMENT = "# x\n## gradwire run\n`--hosts a`, `--rsh ssh`\n## gradwire bench\n`--sizes`\n"
    HELP = "Usage: run [--not-defined-here]\n  -h,--help  Show\n  --hosts TEXT  as --rsh says\n"

    def test_both_ways(self):
        documented = cli_docs.options_of(cli_docs.sections(self.DOCUMENT)["run"])
        self.assertEqual(documented, {"--hosts", "--rsh"})
        defined = cli_docs.defined_options(self.HELP)
        self.assertEqual(defined, {"--hosts"})
        self.assertEqual(len(list(cli_docs.disagreements("run", documented, defined))), 1)
        self.assertEqual(len(list(cli_docs.disagreements("run", {"--hosts"}, {"--json"}))), 2)


class Ambient(unittest.TestCase):
    @staticmethod
    def symbols_of(text):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "a.cpp"
            path.write_text(f"namespace gradwire {{\n{text}\n}}\n")
            subprocess.run(["c++", "-std=c++20", "-c", "a.cpp"], cwd=folder, check=True)
            return ambient.symbols([path.with_suffix(".o"), path.with_suffix(".o")])

    def test_a_mutable_object(self):
        for text in ("int calls;", "namespace { int calls; } int f() { return ++calls; }",
                     "int f() { static int calls; return ++calls; }",
                     "struct A { A(); int a; }; A& f() { static A one; return one; }",
                     "int f() { thread_local int calls; return ++calls; }",
                     "struct A { inline static int calls = 1; }; int f() { return A::calls; }"):
            self.assertTrue(list(ambient.mutable_objects(self.symbols_of(text))), text)
        for text in ("const int kCalls = 3; int f() { return kCalls; }",
                     "constexpr const char* kNames[] = {\"a\"};"
                     "const char* f(int i) { return kNames[i]; }",
                     "int f() { static constexpr int kTable[] = {1, 2}; return kTable[0]; }"):
            self.assertEqual(list(ambient.mutable_objects(self.symbols_of(text))), [], text)

    def test_a_constant_that_a_constructor_fills(self):
        head = "struct A { A(); int a; };"
        for text, wrong in (("static const A kAll; int f() { return kAll.a; }", False),
                            ("int f() { static const A all; return all.a; }", False),
                            ("const int k = 1; A all; int f() { return all.a; }", True)):
            found = ambient.mutable_objects(self.symbols_of(head + text),
                                            lambda _, text=text: head + text)
            self.assertEqual(bool(list(found)), wrong, text)

    def test_an_ambient_call(self):
        head = "}\n#include <chrono>\n#include <cstdlib>\n#include <ctime>\n#include <random>\n" \
               "#include <thread>\nnamespace gradwire {\n"
        for text in ("using C = std::chrono::steady_clock; auto f() { return C::now(); }",
                     "auto f() { namespace c = std::chrono; return c::system_clock::now(); }",
                     "auto* g = &std::getenv;", "auto f() { return time(nullptr); }",
                     "int f() { return rand(); }",
                     "unsigned f() { return std::random_device()(); }",
                     "void f() { std::this_thread::sleep_for(std::chrono::seconds(1)); }"):
            self.assertTrue(list(ambient.ambient_calls(self.symbols_of(head + text))), text)
        self.assertEqual(list(ambient.ambient_calls(self.symbols_of("int f() { return 1; }"))), [])
        getenv = self.symbols_of(head + "auto* g = &std::getenv;")
        self.assertEqual(list(ambient.ambient_calls(
            getenv, lambda _: ["src/gradwire/bootstrap/job.cpp"])), [])

    def test_a_type_of_the_host(self):
        for text in ("SteadyClock clock;\n", "auto n = std::make_shared<KernelNetwork>();\n"):
            self.assertEqual(found(ambient.host_types, text), [1], text)
            command = pathlib.PurePath("src/gradwire/cli/plan/plan_command.cpp")
            self.assertEqual(found(ambient.host_types, text, command), [], text)

    def test_python(self):
        path = pathlib.PurePath("python/gradwire/example.py")
        for text in ("import time\ntime.sleep(1)\n", "import time as t\nx = t.monotonic()\n",
                     "from time import sleep as s\ns(1)\n", "import os\nx = os.environ['A']\n",
                     "from os import environ\nx = environ.get('A')\n",
                     "import os\nread = os.getenv\n", "import random\nx = random.random()\n",
                     "from datetime import datetime\nx = datetime.now()\n"):
            self.assertIn(2, found(ambient.python_calls, text, path), text)
        for text in ("import os\nx = os.path.exists('a')\n", "x = clock.time()\n",
                     "import datetime\nx = datetime.timedelta(seconds=1)\n"):
            self.assertEqual(found(ambient.python_calls, text, path), [], text)
        entry = pathlib.PurePath("python/gradwire/program.py")
        self.assertEqual(found(ambient.python_calls, "import os\nos.environ\n", entry), [])


class Tools(unittest.TestCase):
    def test_clang_format(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "a.cpp"
            path.write_text("int main() { return 0; }\n")
            self.assertTrue(compile_rules.unformatted([path]))
            path.write_text("int main() {\n  return 0;\n}\n")
            self.assertFalse(compile_rules.unformatted([path]))

    def test_clang_format_leaves_tables_in_comments_alone(self):
        row = "///   reduce          C           C (root)      "
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "a.h"
            path.write_text(f"{row}{'x ' * 30}end\n{row}short\nint f();\n")
            self.assertFalse(compile_rules.unformatted([path]))

    def test_a_header_that_needs_others(self):
        with tempfile.TemporaryDirectory() as folder:
            header = pathlib.Path(folder) / "a.h"
            compiler = compile_rules.Compiler(BUILD)
            header.write_text("#pragma once\nstd::string f();\n")
            self.assertIn("string", compiler.errors("a.h", "base", f"-I{folder}"))
            header.write_text("#pragma once\n#include <string>\nstd::string f();\n")
            self.assertEqual(compiler.errors("a.h", "base", f"-I{folder}"), "")

    def test_a_name_whose_header_is_precompiled(self):
        found = [line for line, _ in standard_headers.missing('#include <map>\n\nstd::string f();')]
        self.assertEqual(found, [3])
        for text in ("#include <string>\nstd::string f();\n", "// std::string\n",
                     '#include "gradwire/base/error.h"\nstd::string f();\n'):
            self.assertEqual(list(standard_headers.missing(text)), [])
        self.assertIn("string", standard_headers.precompiled())

    def test_the_files_looked_at_are_the_projects(self):
        names = {path.as_posix() for path in files()}
        self.assertIn("src/gradwire/base/clock.cpp", names)
        self.assertFalse([n for n in names if n.startswith(("build", ".venv", ".git/"))])


if __name__ == "__main__":
    unittest.main(verbosity=2)
