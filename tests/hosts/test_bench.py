"""`gradwire bench` over several hosts from one command, with a peer, and the page of results."""

import json
import os
import pathlib
import sys
import tempfile
import unittest

from harness import RSH, Hosts

GRADWIRE = pathlib.Path(os.environ["GRADWIRE_BIN"]) / "gradwire"
BENCH = pathlib.Path(__file__).resolve().parent.parent.parent / "bench"
sys.path.insert(0, str(BENCH))
import result_cases  # noqa: E402
import results_page  # noqa: E402
from test_rails import sent_bytes  # noqa: E402


class OneCommand(unittest.TestCase):
    def bench(self, hosts, *options, slots=""):
        """Returns the rows and the output. `slots`: ":2" for two ranks on each host."""
        names = ",".join(name + slots for name in hosts.names)
        with tempfile.TemporaryDirectory() as folder:
            report = pathlib.Path(folder) / "rows.json"
            job = hosts.start(0, [GRADWIRE, "bench", *options, "--hosts", names, "--rsh", RSH,
                                  "--json", report], {"XDG_CACHE_HOME": folder})
            self.assertEqual(job.wait(100), 0, job.output())
            for host in range(hosts.count):
                self.assertEqual(hosts.processes(host, GRADWIRE), [])
            return json.loads(report.read_text())["rows"], job.output()

    def test_measures_all_hosts(self):
        with Hosts(3) as hosts:
            rows, output = self.bench(hosts, "all_to_all", "--sizes", "12,600K", "--iterations",
                                      "3", "--interface", "gw", "--limit", "1Gb/s")
        self.assertEqual([(row["bytes"], row["ranks"], row["wrong"]) for row in rows],
                         [(12, 3, 0), (614400, 3, 0)])
        self.assertIn("# 3 ranks", output)
        self.assertRegex(output, r"\d%")

    def test_measures_mpi(self):
        size, iterations = 1 << 20, 5
        for mpi in ("openmpi", "mpich"):
            with self.subTest(mpi), Hosts(2) as hosts:
                rows, _ = self.bench(hosts, "all_reduce", "--engine", "mpi", "--mpirun",
                                     f"mpirun.{mpi}", "--sizes", size, "--iterations", iterations,
                                     "--env", "UCX_TLS=tcp,self",  # Hosts share their kernel.
                                     "--interface", "gw0")
                self.assertEqual([(row["engine"], row["ranks"], row["wrong"]) for row in rows],
                                 [("mpi", 2, 0)])
                # Each of two ranks sends all bytes.
                self.assertGreater(sent_bytes(hosts, 0, "gw0"), iterations * size)

    def test_one_port_does(self):
        with Hosts(2) as hosts:
            rows, _ = self.bench(hosts, "all_reduce", "--sizes", "4K", "--iterations", "3",
                                 "--port", "29555")
        self.assertEqual([(row["ranks"], row["wrong"]) for row in rows], [(2, 0)])

    def test_what_stays_in_a_host_stays_off_its_card(self):
        size, iterations = 4 << 20, 20
        with Hosts(2) as hosts:
            rows, output = self.bench(
                hosts, "all_reduce", "--sizes", size, "--iterations", iterations, "--warmup", "1",
                "--algorithm", "hierarchical,leaders", slots=":2")
            self.assertEqual([(row["algorithm"], row["ranks"], row["wrong"]) for row in rows],
                             [("hierarchical", 4, 0), ("leaders", 4, 0)])
            # With both algorithms a host of two sends the data once: 2 (H - 1) / H and H - 1 times.
            # One operation with known data precedes and one follows the measured ones.
            expected = len(rows) * (1 + 1 + iterations + 1) * size
            for host in range(2):
                sent = sent_bytes(hosts, host, "gw0")
                self.assertGreater(sent, expected, output)
                self.assertLess(sent, 1.15 * expected, output)  # Includes headers and ACKs.
                self.assertLess(sent_bytes(hosts, host, "lo"), size, output)

    def test_open_mpi_runs_on_the_same_hosts_and_links(self):
        with Hosts(2) as hosts:
            rows, _ = self.bench(hosts, "point_to_point", "--sizes", "64K", "--iterations", "20",
                                 "--compare", "mpi", "--rounds", "1", "--interface", "gw")
        self.assertEqual([(row["system"], row["ranks"]) for row in rows],
                         [("gradwire", 2), ("mpi", 2)])
        # 20 operations of 64 KiB at 1 Gb/s, of which the first 128 KiB are not shaped.
        self.assertGreater(rows[1]["median_us"], 400)


def row(system, size, median_us, **more):
    return {"system": system, "collective": "all_reduce", "bytes": size, "median_us": median_us,
            "p99_us": 2 * median_us, "busbw_gbps": 12e-3 * size / median_us, "cpu_seconds": 1,
            "cpu_seconds_per_gb": 1, **more}


class Page(unittest.TestCase):
    def lines(self, rows):
        """Returns {(links, size, measure): its cells} of the cases with figures."""
        results = {"links": {"1g": {"busy": 0.2, "rounds": 3, "rows": rows}}}
        return {(case.links, case.size, case.measure): results_page.case_line(results, case)
                for case in result_cases.CASES if case.links == "1g"}

    def test_says_what_holds(self):
        big = 100_000_000
        lines = self.lines([row("gradwire", 4, 59), row("gloo", 4, 450), row("gradwire", 4096, 91),
                            row("gradwire", big, 1.25e6, cpu_seconds=0.6),
                            row("gloo", big, 1.27e6)])
        self.assertEqual(lines["1g", 4, "us"][5], "yes")
        self.assertEqual(lines["1g", 4096, "us"][5], "**no**")
        self.assertEqual(lines["1g", 1 << 20, "share"][5], "not measured")
        self.assertEqual(lines["1g", big, "share"][5], "yes")  # 96 %
        self.assertIn("96.0 %", lines["1g", big, "share"][3])
        self.assertEqual(lines["1g", big, "cpu"][5], "yes")
        self.assertIn("0.60x", lines["1g", big, "cpu"][3])

    def test_every_case_has_its_size_measured(self):
        for case in result_cases.CASES:
            self.assertIn(case.size, result_cases.links_named(case.links).sizes)

    def test_shows_every_collective_beside_gloo(self):
        rows = [dict(row(system, 4096, us), collective="gather")
                for system, us in (("gradwire", 100), ("gloo", 50))]
        lines = list(results_page.collective_lines({"links": {"collectives": {"rows": rows}}}))
        self.assertEqual(lines[0][:2], ["gather", "100 us, **0.50x**"])

    def test_shows_what_the_tuner_missed(self):
        rows = [{"links": "1g", "bytes": 4, "what": what, "algorithm": algorithm, "median_us": us}
                for what, algorithm, us in (("tuner", "ring", 12), ("all", "ring", 11),
                                            ("all", "tree", 10), ("tuner", "ring", 12))]
        lines = list(results_page.tuner_lines({"links": {"tuner": {"rows": rows}}}))
        self.assertEqual(lines[0][1:3], ["ring 1.10, 1.20 (tree is best)", "-"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
