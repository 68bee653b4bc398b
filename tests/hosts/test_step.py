"""`gradwire bench step` between hosts: a short run of each kind, with DDP if it is installed."""

import json
import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

from harness import RSH, Hosts

GRADWIRE = pathlib.Path(os.environ["GRADWIRE_BIN"]) / "gradwire"
PACKAGE = GRADWIRE.parents[1] / "python"
PARAMETERS = 16 * 800_000
MODEL = "--profile", "uniform:16x3200000"  # Bytes of a layer.


class Step(unittest.TestCase):
    def bench(self, hosts, *options):
        """Returns the rows and the output."""
        with tempfile.TemporaryDirectory() as folder:
            report = pathlib.Path(folder) / "rows.json"
            job = hosts.start(0, [GRADWIRE, "bench", "step", *options, "--hosts",
                                  ",".join(hosts.names), "--rsh", RSH, "--interface", "gw0",
                                  "--warmup", "2", "--json", report])
            self.assertEqual(job.wait(150), 0, job.output())
            return json.loads(report.read_text())["rows"], job.output()

    def test_hides_what_is_sent(self):
        with Hosts(4, "1gbit") as hosts:
            rows, output = self.bench(hosts, *MODEL, "--compute-ms", "250", "--steps", "3",
                                      "--limit", "956Mb/s", "--codec", "int8",
                                      "--overlap", "none,full")
        none, full = rows
        self.assertEqual((none["overlap"], full["overlap"]), ("none", "full"))
        for row in rows:
            self.assertEqual((row["codec"], row["accumulate"], row["ranks"], row["steps"]),
                             ("int8", 1, 4, 3))
            self.assertAlmostEqual(row["eta"], min(row["single_ms"] / row["step_ms"], 1), places=6)
            # A byte for each parameter and a scale for each block, to and from their owners.
            self.assertAlmostEqual(row["bytes_per_step"] / (1.5 * PARAMETERS), 1, delta=0.05)
            # Compute is a sleep, which never ends early, but may end late on a busy machine.
            self.assertGreater(row["single_ms"], 249)
            self.assertLess(row["single_ms"], 325)
        # 19 MB take 160 ms of 1 Gb/s: exposed in full, or almost hidden.
        self.assertGreater(none["exposed_ms"], 150)
        self.assertLess(full["exposed_ms"], none["exposed_ms"] / 2)
        self.assertIn("bound", output)

    def test_local_steps_send_a_share_and_hide_it_behind_the_overlap(self):
        with Hosts(2, "1gbit") as hosts:
            rows, _ = self.bench(hosts, *MODEL, "--compute-ms", "300", "--steps", "4",
                                 "--local-steps", "4")
            more, _ = self.bench(hosts, *MODEL, "--compute-ms", "300", "--steps", "4",
                                 "--local-steps", "4", "--fragments", "2", "--overlap-steps", "1")
        rows += more
        self.assertEqual([(row["local_steps"], row["fragments"], row["overlap_steps"],
                           row["steps"]) for row in rows], [(4, 1, 0, 4), (4, 2, 1, 4)])
        for row in rows:
            self.assertAlmostEqual(row["bytes_per_step"] / PARAMETERS, 1, delta=0.02)
        # 51 MB take 430 ms of 1 Gb/s, once in four steps; half of them less than a step.
        self.assertGreater(rows[0]["exposed_ms"], 100)
        self.assertLess(rows[1]["exposed_ms"], 50)

    def test_sharded_states_send_what_theory_says(self):
        with Hosts(4, "1gbit") as hosts:
            rows, output = self.bench(hosts, "--profile", "uniform:16x400000", "--compute-ms",
                                      "300", "--steps", "3", "--zero-stage", "0,1,2,3",
                                      "--bucket", "1", "--first-bucket", "1", "--last-bucket", "1")
        self.assertEqual([row["zero_stage"] for row in rows], [0, 1, 2, 3])
        for row in rows:
            theory = 1.5 if row["zero_stage"] == 3 else 1
            times = row["bytes_per_step"] / (2 * 3 / 4 * 16 * 400000)
            self.assertLess(abs(times - theory), 0.06, row)
            # 9.6 MB, or 14, take 80 or 120 ms of 1 Gb/s, nearly all of it hidden.
            self.assertLess(row["exposed_ms"], 60, row)
        self.assertLess(rows[3]["parameter_bytes"], rows[0]["parameter_bytes"] / 1.8)
        self.assertLess(rows[2]["gradient_bytes"], rows[1]["gradient_bytes"] / 1.8)
        self.assertIn("1.00 of 1.0", output)

    @unittest.skipUnless(PACKAGE.is_dir(), "built without the Python package")
    def test_ddp_runs_beside_it_over_both_backends(self):
        with Hosts(2, "1gbit") as hosts, mock.patch.dict(os.environ, PYTHONPATH=str(PACKAGE)):
            rows, _ = self.bench(hosts, *MODEL, "--compute-ms", "100", "--steps", "3", "--compare",
                                 "ddp,ddp-gradwire", "--python", sys.executable, "--rounds", "1",
                                 "--codec", "bf16", "--accumulate", "2", "--env", "PYTHONPATH")
        self.assertEqual([(row["system"], row["codec"], row["accumulate"]) for row in rows],
                         [(system, "bf16", 2) for system in ("gradwire", "ddp", "ddp-gradwire")])
        for row in rows[1:]:
            self.assertAlmostEqual(row["single_ms"], 200, delta=50)
            self.assertGreater(row["exposed_ms"], 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
