"""Jobs on four hosts: that they run, and their errors when a host or a link fails."""

import json
import os
import pathlib
import re
import tempfile
import time
import unittest

from harness import MASTER_PORT, Hosts

GRADWIRE = pathlib.Path(os.environ["GRADWIRE_BIN"]) / "gradwire"
# More work than any test waits for, so that only a failure ends it.
ENDLESS = [GRADWIRE, "bench", "all_reduce", "--sizes", "4M", "--iterations", "1000000"]
DEAD_LINK_SECONDS = 5  # CommunicatorOptions::dead_peer_timeout


def busy(hosts):
    """Returns once every host has sent ten megabytes."""
    deadline = time.monotonic() + 60
    while min(sent_bytes(hosts, host) for host in range(hosts.count)) < 10_000_000:
        if time.monotonic() > deadline:
            raise AssertionError("the ranks do not communicate:\n" + hosts.script("show"))
        time.sleep(0.02)


def sent_bytes(hosts, host):
    text = hosts.read(host, "/proc/net/dev")
    return int(re.search(r"gw0:(?:\s+\d+){8}\s+(\d+)", text).group(1))


class Healthy(unittest.TestCase):
    def test_a_launched_job_computes_the_right_sums_and_leaves_nothing_behind(self):
        with Hosts(4) as hosts, tempfile.TemporaryDirectory() as folder:
            report = pathlib.Path(folder) / "rows.json"
            job = hosts.launch(GRADWIRE, ["--interface", "gw"], [
                GRADWIRE, "bench", "all_reduce", "--sizes", "4,64K,4M", "--iterations", "5",
                "--json", report])
            self.assertEqual(job.wait(), 0, job.output())
            rows = json.loads(report.read_text())["rows"]
            self.assertEqual([row["bytes"] for row in rows], [4, 65536, 4194304])
            self.assertEqual([(row["ranks"], row["wrong"]) for row in rows], [(4, 0)] * 3)
            for host in range(4):
                self.assertEqual(hosts.processes(host, GRADWIRE), [])

    def test_nothing_listens_beyond_the_chosen_interface(self):
        with Hosts(2, "1gbit", 2) as hosts:
            # Rank 0 alone: it keeps listening for rank 1.
            rank = hosts.start(0, ENDLESS, {
                "RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "10.77.1.1",
                "MASTER_PORT": str(MASTER_PORT), "GRADWIRE_SECRET": "the secret of this test",
                "GRADWIRE_INTERFACE": "gw1"})
            deadline = time.monotonic() + 30
            while len(listeners := hosts.listeners(0)) < 2:  # For the rendezvous, for the mesh.
                self.assertLess(time.monotonic(), deadline, rank.output())
                time.sleep(0.01)
            self.assertEqual({address for address, _ in listeners}, {"10.77.1.1"})


class Faults(unittest.TestCase):
    """Errors of every rank by itself, without a launcher that would end it."""

    def assert_named(self, rank, output, lost, hosts):
        """Checks that the error of `rank` names rank, host and link of the lost one."""
        place = rf"rank {lost} \(host {hosts.names[lost]}, {hosts.addresses[lost]}:\d+ over gw0\)"
        self.assertRegex(output, place, f"what rank {rank} said")

    def test_a_killed_process_is_named_on_every_rank_within_a_second(self):
        with Hosts(4) as hosts:
            ranks = hosts.start_ranks(ENDLESS)
            busy(hosts)
            hosts.kill(2, GRADWIRE)
            killed = time.monotonic()
            for rank in (0, 1, 3):
                self.assertEqual(ranks[rank].wait(10), 1, ranks[rank].output())
                self.assert_named(rank, ranks[rank].output(), 2, hosts)
            self.assertLess(time.monotonic() - killed, 1)

    def test_a_cut_link_is_named_on_every_rank_within_the_dead_link_time(self):
        with Hosts(4) as hosts:
            ranks = hosts.start_ranks(ENDLESS)
            busy(hosts)
            hosts.cut(1)
            cut = time.monotonic()
            for rank in (0, 2, 3):
                self.assertEqual(ranks[rank].wait(30), 1, ranks[rank].output())
                self.assert_named(rank, ranks[rank].output(), 1, hosts)
            self.assertLess(time.monotonic() - cut, 2 * DEAD_LINK_SECONDS)
            # The rank behind the cut loses all others at once; it names one of them.
            self.assertEqual(ranks[1].wait(30), 1)
            self.assertRegex(ranks[1].output(), r"rank [023] \(host " + hosts.prefix)

    def test_a_rail_that_is_cut_before_the_start_is_named_on_every_rank(self):
        with Hosts(3, "1gbit", 2) as hosts:
            hosts.cut(1, 1)
            ranks = hosts.start_ranks(ENDLESS, {"GRADWIRE_INTERFACE": "gw"})
            for rank in ranks:
                # A rank that is not told times out after a minute.
                self.assertEqual(rank.wait(45), 1, rank.output())
                self.assertRegex(rank.output(),
                                 r"rank [01] \(host \S+ 10\.77\.1\.[12]:\d+ over gw1\)")

    def test_the_launcher_ends_the_job_of_a_killed_process(self):
        with Hosts(4) as hosts:
            job = hosts.launch(GRADWIRE, [], ENDLESS)
            busy(hosts)
            hosts.kill(3, GRADWIRE)
            self.assertNotEqual(job.wait(30), 0)
            self.assertIn("rank 3", job.output())
            for host in range(4):
                self.assertEqual(hosts.processes(host, GRADWIRE), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
