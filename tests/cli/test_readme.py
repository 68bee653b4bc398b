"""Output shown in README.md under a command must be the command's output.

usage: test_readme.py PROGRAM [unittest arguments]

Figures that vary between runs, such as times, are compared only as numbers; those of LOOSE within a
tolerance; all others exactly.
"""

import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAM = pathlib.Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else None
VARYING = re.compile(r"\d+ ranks: \d+ steps in|throughput|compute T_s|communication T_c|waiting for"
                     r"|scaling efficiency|images/s")
LOOSE = {"test accuracy": 0.03}  # Training results differ slightly between processors.
# make test-long: also the sample that trains, a minute.
IS_LONG = os.environ.get("GRADWIRE_LONG", "0") != "0"
NUMBER = re.compile(r"\d+(?:\.\d+)?")


def samples(text):
    """Yields (command of gradwire, its output lines) of the indented blocks."""
    for block in re.findall(r"(?:^    .*\n)+", text, re.MULTILINE):
        block = block.replace("\\\n", "")
        command, shown = None, []
        for line in [*block.splitlines(), "    $ "]:
            if not line.startswith("    $ "):
                shown.append(line[4:])
                continue
            if command and shown and command.startswith("build/bin/gradwire "):
                yield command, shown
            command, shown = line[6:], []


def same(shown, printed):
    if NUMBER.sub("#", " ".join(shown.split())) != NUMBER.sub("#", " ".join(printed.split())):
        return False
    if VARYING.search(shown):
        return True
    tolerance = next((t for words, t in LOOSE.items() if words in shown), 0)
    pairs = zip(NUMBER.findall(shown), NUMBER.findall(printed), strict=True)
    return all(a == b or abs(float(a) - float(b)) <= tolerance * float(a) for a, b in pairs)


def missing(shown, printed):
    """Returns the first line of `shown` that is missing from `printed` at its place, or None. "..."
    matches any lines."""
    rest, anywhere = list(printed), True
    for line in shown:
        if line.strip() == "...":
            anywhere = True
            continue
        while rest and anywhere and not same(line, rest[0]):
            rest.pop(0)
        if not rest or not same(line, rest[0]):
            return line
        rest.pop(0)
        anywhere = False
    return None


class Samples(unittest.TestCase):
    def printed(self, command, folder):
        """Returns the output lines of a command of README.md, which is run in `folder`."""
        command = command.replace("build/bin/gradwire", str(PROGRAM)).replace(
            "examples/", f"{ROOT}/examples/")
        done = subprocess.run(command, shell=True, cwd=folder, text=True, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        return done.stdout.replace(f" on host {socket.gethostname()} ", " on host a ").splitlines()

    def test_every_sample_is_what_is_printed(self):
        found = list(samples((ROOT / "README.md").read_text(encoding="utf-8")))
        self.assertGreaterEqual(len(found), 5)
        if not IS_LONG:
            found = [sample for sample in found if "bin/gradwire train" not in sample[0]]
        for command, shown in found:
            with self.subTest(command), tempfile.TemporaryDirectory() as folder:
                printed = self.printed(command, folder)
                if "bin/gradwire run" in command:  # Ranks write in any order.
                    shown, printed = sorted(shown), sorted(printed)
                line = missing(shown, printed)
                self.assertIsNone(line, f"README.md shows {line!r}; printed was\n"
                                  + "\n".join(printed))


class Rules(unittest.TestCase):
    def test_a_stale_figure_is_found(self):
        self.assertTrue(same("  sent  1.192 MiB", "sent 1.192 MiB"))
        self.assertFalse(same("  sent  1.192 MiB", "sent 1.184 MiB"))
        self.assertTrue(same("test accuracy 91.89 %", "test accuracy 91.8 %"))
        self.assertFalse(same("test accuracy 91.89 %", "test accuracy 88.0 %"))
        self.assertTrue(same("throughput 5 images/s", "throughput 7777.1 images/s"))
        self.assertIsNone(missing(["a", "...", "d"], ["a", "b", "c", "d", "e"]))
        self.assertEqual(missing(["a", "c"], ["a", "b", "c"]), "c")
        self.assertEqual(list(samples("x\n    $ build/bin/gradwire a\n    1\n    $ c\n\n    2\n")),
                         [("build/bin/gradwire a", ["1"])])


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    unittest.main(verbosity=2)
