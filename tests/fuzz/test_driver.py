#!/usr/bin/env python3
"""The driver of the fuzz targets finds planted bugs, reports the input of each, and is reproducible
with the same seed.

usage: test_driver.py COMMAND...   (that starts fuzz_planted)
"""

import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

COMMAND = sys.argv[1:]
SEEDS = range(1, 60)

# Planted bugs, and the messages that identify them.
PLANTED = {
    "read beyond the end": "heap-buffer-overflow",
    "believed length": "exceeds maximum supported size|allocation-size-too-big",
    "endless loop": "processor time",
    "broken promise": "broken promise: message 1003 does not come",
}


class Driver(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_planted(self, *arguments):
        done = subprocess.run([*COMMAND, *map(str, arguments)], cwd=self.folder, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=200)
        return done.returncode, done.stdout

    def test_finds_what_is_planted_and_replays_it(self):
        missing = dict(PLANTED)
        for seed in SEEDS:
            if not missing:
                break
            status, output = self.run_planted("--seed", seed, "--executions", 100_000,
                                              "--most-seconds", 1)
            if status == 0:
                continue
            found = [name for name, words in missing.items() if re.search(words, output)]
            file = re.search(r"It is in (\S+);", output)
            self.assertTrue(file, output)
            shown = re.search(r"bytes:\n([0-9a-f]+)", output).group(1)
            self.assertTrue((self.folder / file.group(1)).read_bytes().hex().startswith(shown))
            again, words = self.run_planted("--replay", file.group(1), "--most-seconds", 1)
            self.assertNotEqual(again, 0, words)
            for name in found:
                del missing[name]
        self.assertFalse(missing)

    def test_the_same_seed_finds_the_same(self):
        def ending(seed):
            _, output = self.run_planted("--seed", seed, "--executions", 100_000,
                                         "--most-seconds", 1)
            return re.findall(r"at execution \d+ with seed|^[0-9a-f]{60,}", output, re.M)
        first = ending(1)
        self.assertEqual(len(first), 2)
        self.assertEqual(first, ending(1))

    def test_seeds_alone_are_fine(self):
        status, output = self.run_planted("--executions", 1)
        self.assertEqual(status, 0, output)
        self.assertIn("seed 1, 1 executions", output)

    def test_unknown_options_are_refused(self):
        status, output = self.run_planted("--sed", 1)
        self.assertEqual(status, 2)
        self.assertIn("usage:", output)


if __name__ == "__main__":
    sys.argv = sys.argv[:1]
    unittest.main()
