"""`gradwire bench pipeline` between hosts: bubbles of schedules, and their prediction."""

import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

from harness import RSH, Hosts

GRADWIRE = pathlib.Path(os.environ["GRADWIRE_BIN"]) / "gradwire"


def bench(hosts, *options):
    """Returns the rows by schedule, and the output, of three steps after two."""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "rows.json"
        job = hosts.start(0, [GRADWIRE, "bench", "pipeline", *options, "--warmup", "2",
                              "--steps", "3", "--hosts",
                              ",".join(hosts.names), "--rsh", RSH, "--interface", "gw0",
                              "--json", report])
        if job.wait(150) != 0:
            raise AssertionError(job.output())
        rows = json.loads(report.read_text())["rows"]
        return {row["schedule"]: row for row in rows}, job.output()


class Pipeline(unittest.TestCase):
    def test_runs_as_simulated(self):
        """1 MiB takes 9 ms of 1 Gb/s, half of a forward."""
        with Hosts(4, "1gbit") as hosts:
            rows, output = bench(hosts, "--stages", "4", "--micro-batches", "16", "--message-bytes",
                                 "1M", "--schedule", "gpipe,1f1b,1f1b:4,zero_bubble:12")
        for row in rows.values():
            self.assertAlmostEqual(row["ideal_ms"], 960)
            self.assertAlmostEqual(row["bubble"], 1 - 960 / row["step_ms"], places=6)
            # A sleep never ends early, but may end late on a busy machine, where a transfer also
            # takes longer when it is measured.
            self.assertGreater(row["step_ms"], 0.95 * row["predicted_ms"], output)
            self.assertLess(row["step_ms"], 1.2 * row["predicted_ms"], output)
        kept = {name: row["kept"] for name, row in rows.items()}
        self.assertEqual(kept, {"gpipe": 16, "1f1b": 7, "1f1b:4": 4, "zero_bubble:12": 12})
        # The warm-up that the network needs, and weight gradients in idle time.
        self.assertLess(rows["1f1b"]["step_ms"], rows["1f1b:4"]["step_ms"] - 100)
        self.assertLess(rows["zero_bubble:12"]["step_ms"], rows["1f1b"]["step_ms"] - 100)

    def test_runs_as_planned(self):
        """From the name of the network alone. A busy machine lengthens a run; 5 % is usual
        (docs/pipeline.md)."""
        schedules = ["1f1b", "zero_bubble:12"]
        with Hosts(4, "1gbit") as hosts:
            for rate, network in (("1gbit", "1Gb/s"), ("500mbit", "500Mb/s")):
                hosts.script("rate", rate)
                rows, output = bench(hosts, "--micro-batches", "16", "--message-bytes", "1M",
                                     "--schedule", ",".join(schedules))
                for name in schedules:
                    planned = planned_ms(name, network)
                    self.assertGreater(rows[name]["step_ms"], 0.95 * planned, output)
                    self.assertLess(rows[name]["step_ms"], 1.15 * planned, output)


def planned_ms(schedule, network):
    """Returns the milliseconds of a step that `gradwire schedule` predicts for these hosts."""
    said = subprocess.run(
        [GRADWIRE, "schedule", schedule, "--stages", "4", "--micro-batches", "16", "--compute",
         "20,20,20ms", "--message", "1M", "--network", network, "--steps", "5"],
        check=True, text=True, stdout=subprocess.PIPE).stdout
    return float(re.search(r"^step +([\d.]+) ms", said, re.MULTILINE).group(1))


if __name__ == "__main__":
    unittest.main(verbosity=2)
