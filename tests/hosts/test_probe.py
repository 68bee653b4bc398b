"""gradwire probe between hosts: what it finds must be what the hosts were made with."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

from harness import RSH, Hosts

GRADWIRE = pathlib.Path(os.environ["GRADWIRE_BIN"]) / "gradwire"
MBIT = 1e6 / 8  # Bytes per second.


class Probe(unittest.TestCase):
    def probe(self, hosts, *options, ranks=None):
        """(topology.json, output) of a probe that must succeed."""
        with tempfile.TemporaryDirectory() as folder:
            result = pathlib.Path(folder) / "topology.json"
            job = hosts.start(0, [GRADWIRE, "probe", "-n", str(ranks or hosts.count), "--hosts",
                                  ",".join(hosts.names), "--rsh", RSH, "--output", result,
                                  *options])
            self.assertEqual(job.wait(120), 0, job.output())
            return json.loads(result.read_text()), job.output()

    def test_rates_latencies_and_clocks_of_unequal_hosts(self):
        with Hosts(3, "200mbit") as hosts:
            hosts.script("rate", "100mbit", 1)
            found, output = self.probe(hosts)
            self.assertEqual(found["version"], 1)
            self.assertEqual([host["name"] for host in found["hosts"]], hosts.names)
            paths = {(path["from"], path["to"]): path for path in found["paths"]}
            self.assertEqual(set(paths), {(a, b) for a in range(3) for b in range(3) if a != b})
            for (a, b), path in paths.items():
                rate = path["bytes_per_second"] / MBIT
                # Never faster than the slower end; how much slower depends on what else runs here.
                self.assertLess(rate, 108 if 1 in (a, b) else 212, output)
                self.assertGreater(rate, 50 if 1 in (a, b) else 105, output)
                self.assertLessEqual(path["shortest_latency_us"], path["latency_us"])
                self.assertEqual((path["largest_packet"], path["rail"]), (1500, 0))
            # One machine, so one clock.
            for host in found["hosts"]:
                self.assertLessEqual(abs(host["clock_offset_us"]), host["clock_uncertainty_us"])
            self.assertLess(found["hosts"][1]["rails"][0]["bytes_per_second"], 108 * MBIT)
            self.assertGreater(found["hosts"][2]["rails"][0]["bytes_per_second"], 105 * MBIT)

    def test_rails_and_the_inside_of_hosts(self):
        with Hosts(2, "200mbit", 2) as hosts:
            hosts.script("rate", "100mbit", "all", 1)
            found, output = self.probe(hosts, "--interface", "gw", ranks=4)
            for host in found["hosts"]:
                self.assertEqual(host["ranks"], 2)
                self.assertEqual([rail["interface"] for rail in host["rails"]], ["gw0", "gw1"])
                self.assertGreater(host["inside"]["bytes_per_second"], 400 * MBIT, output)
                self.assertGreater(host["together_bytes_per_second"], 150 * MBIT, output)
                self.assertLess(host["together_bytes_per_second"], 320 * MBIT, output)
            for path in found["paths"]:
                rate = path["bytes_per_second"] / MBIT
                self.assertLess(rate, [212, 108][path["rail"]], output)
                self.assertGreater(rate, [105, 50][path["rail"]], output)
            self.assertEqual(len(found["paths"]), 4)

    def test_a_black_hole_is_found_and_not_sent_into(self):
        with Hosts(3, "200mbit") as hosts:
            subprocess.run(["ip", "netns", "exec", f"{hosts.prefix}-sw0", "ip", "link", "set",
                            "dev", "p1", "mtu", "1300"], check=True)
            found, output = self.probe(hosts)
            for path in found["paths"]:
                if 1 in (path["from"], path["to"]):
                    self.assertIn(path["largest_packet"], range(1300, 1320), output)
                    self.assertEqual(path["bytes_per_second"], 0)
                else:
                    self.assertEqual(path["largest_packet"], 1500)
                    self.assertGreater(path["bytes_per_second"], 100 * MBIT, output)
            self.assertIn("gradwire doctor", output)

    def test_one_rank_has_nothing_to_measure(self):
        with Hosts(1, "none") as hosts:
            alone = hosts.start(0, [GRADWIRE, "probe"])
            self.assertEqual(alone.wait(), 1)
            self.assertIn("--hosts a,b,c", alone.output())


if __name__ == "__main__":
    unittest.main(verbosity=2)
