"""One port per host is enough: jobs between hosts whose firewalls block everything else."""

import json
import os
import pathlib
import secrets
import subprocess
import sys
import tempfile
import time
import unittest

from harness import RSH, Hosts

GRADWIRE = pathlib.Path(os.environ["GRADWIRE_BIN"]) / "gradwire"
PACKAGE = GRADWIRE.parents[1] / "python"
PORT = 29377
BENCH = [GRADWIRE, "bench", "all_reduce", "--sizes", "4,64K,4M", "--iterations", "5"]

PYTHON = """
import torch, torch.distributed as dist, gradwire
dist.init_process_group("gradwire")
ranks = [dist.get_rank()] * dist.get_world_size()
dist.all_gather_object(ranks, dist.get_rank(), group=dist.new_group())
dist.destroy_process_group()
print("met", ranks, flush=True)
"""


def close_all_ports_but(hosts, host, port):
    """Drops all packets from the network except those for `port` and answers to it. Uses routing
    rules, because some kernels have no packet filter."""
    def rule(verb, pref, *words):
        subprocess.run(["ip", "-n", hosts.names[host], "rule", verb, "pref", str(pref),
                        *map(str, words)], check=True)
    rule("add", 100, "lookup", "local")  # Replaces rule 0, which is removed.
    for protocol in ("tcp", "udp"):
        coming = ("iif", "gw0", "ipproto", protocol)
        rule("add", 10, *coming, "dport", port, "lookup", "local")
        rule("add", 20, *coming, "sport", port, "lookup", "local")
        rule("add", 30, *coming, "blackhole")
    rule("del", 0)


def start(hosts, command, ranks, *options):
    """Starts a gradwire command on host 0 with `ranks` ranks spread over the hosts."""
    return hosts.start(0, [GRADWIRE, command, "-n", str(ranks), "--hosts", ",".join(hosts.names),
                           "--rsh", RSH, *options])


def launch(hosts, ranks, *options):
    return start(hosts, "run", ranks, *options, "--", *BENCH)


class OnePort(unittest.TestCase):
    def test_is_enough_for_several_ranks_on_each_of_several_hosts(self):
        with Hosts(3) as hosts:
            for host in range(3):
                close_all_ports_but(hosts, host, PORT)
            job = launch(hosts, 6, "--port", str(PORT))
            self.assertEqual(job.wait(60), 0, job.output())
            self.assertIn("4194304", job.output())

    def test_is_enough_for_python_too(self):
        with Hosts(2) as hosts:
            for host in range(2):
                close_all_ports_but(hosts, host, PORT)
            job = start(hosts, "run", 4, "--port", str(PORT), "--env", f"PYTHONPATH={PACKAGE}",
                        "--", sys.executable, "-c", PYTHON)
            self.assertEqual(job.wait(100), 0, job.output())
            self.assertEqual(job.output().count("met [0, 1, 2, 3]"), 4, job.output())

    def test_the_probe_sends_its_datagrams_there_too(self):
        with Hosts(2) as hosts, tempfile.TemporaryDirectory() as folder:
            for host in range(2):
                close_all_ports_but(hosts, host, PORT)
            file = pathlib.Path(folder) / "topology.json"
            options = ("--port", str(PORT), "--seconds", "0.05")
            probe = start(hosts, "probe", 4, *options, "--output", file)
            self.assertEqual(probe.wait(60), 0, probe.output())
            for path in json.loads(file.read_text())["paths"]:
                self.assertEqual(path["largest_packet"], 1500, probe.output())
                self.assertGreater(path["bytes_per_second"], 0, probe.output())
            tune = start(hosts, "tune", 4, *options, "--topology", file, "--collectives",
                         "all_reduce", "--sizes", "4K")
            self.assertEqual(tune.wait(60), 0, tune.output())
            # The probe must detect an MTU black hole before TCP stalls in it.
            subprocess.run(["ip", "-n", f"{hosts.prefix}-sw0", "link", "set", "dev", "p1", "mtu",
                            "1300"], check=True)
            probe = start(hosts, "probe", 4, *options, "--output", file)
            self.assertEqual(probe.wait(60), 0, probe.output())
            for path in json.loads(file.read_text())["paths"]:
                self.assertIn(path["largest_packet"], range(1300, 1320), probe.output())
                self.assertEqual(path["bytes_per_second"], 0, probe.output())

    def test_the_doctor_finds_nothing_wrong_with_it(self):
        with Hosts(2) as hosts:
            for host in range(2):
                close_all_ports_but(hosts, host, PORT)
            of_hosts = ("doctor", 4, "--port", str(PORT))
            as_ranks = ("run", 4, "--port", str(PORT), "--no-prefix", "--", GRADWIRE, "doctor")
            for command in (of_hosts, as_ranks):
                doctor = start(hosts, *command)
                self.assertEqual(doctor.wait(60), 0, doctor.output())
                self.assertIn("No problems found", doctor.output())
                self.assertNotIn("(UDP)", doctor.output())
                self.assertNotIn("was not measured", doctor.output())

    def test_without_it_such_firewalls_keep_the_ranks_apart(self):
        with Hosts(2) as hosts:
            for host in range(2):
                close_all_ports_but(hosts, host, PORT)
            job = launch(hosts, 2, "--master-port", str(PORT))
            deadline = time.monotonic() + 30
            while not hosts.connections(1, under_way=True):
                self.assertLess(time.monotonic(), deadline, job.output())
                time.sleep(0.01)
            # Rank 1 has read rank 0's endpoint in the store, and gets no answer from there.
            ((_, port),) = {other for _, other in hosts.connections(1, under_way=True)}
            self.assertNotEqual(port, PORT)
            self.assertIsNone(job.child.poll(), job.output())

    def test_nothing_else_listens(self):
        with Hosts(2) as hosts:
            # Two ranks of three on one host: they keep listening for the third.
            job = {"WORLD_SIZE": "3", "MASTER_ADDR": hosts.addresses[0], "LOCAL_WORLD_SIZE": "2",
                   "GRADWIRE_PORT": str(PORT), "GRADWIRE_SECRET": secrets.token_hex(16)}
            ranks = [hosts.start(0, BENCH, {**job, "RANK": str(rank), "LOCAL_RANK": str(rank)})
                     for rank in (0, 1)]
            deadline = time.monotonic() + 30
            while len(hosts.connections(0)) < 4:  # Both ranks have reached the store.
                self.assertLess(time.monotonic(), deadline, ranks[0].output())
                time.sleep(0.01)
            self.assertEqual(hosts.listeners(0), [(hosts.addresses[0], PORT)])
            last = hosts.start(1, BENCH, {**job, "RANK": "2", "LOCAL_RANK": "0",
                                          "LOCAL_WORLD_SIZE": "1"})
            for rank in [*ranks, last]:
                self.assertEqual(rank.wait(60), 0, rank.output())


if __name__ == "__main__":
    unittest.main(verbosity=2)
