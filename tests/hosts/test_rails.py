"""Several rails: multiple network interfaces per host."""

import json
import os
import pathlib
import re
import subprocess
import tempfile
import time
import unittest

from harness import Hosts

GRADWIRE = pathlib.Path(os.environ["GRADWIRE_BIN"]) / "gradwire"
ENDLESS = [GRADWIRE, "bench", "all_reduce", "--iterations", "1000000", "--sizes", "4M"]


def mesh(hosts, host):
    """Returns {(local address, remote address)} of a host's connections to other hosts."""
    ends = {(own[0], other[0]) for own, other in hosts.connections(host)}
    return {(own, other) for own, other in ends if own != other}


def sent_bytes(hosts, host, interface):
    text = hosts.read(host, "/proc/net/dev")
    return int(re.search(interface + r":(?:\s+\d+){8}\s+(\d+)", text).group(1))


def wait_until(condition, job):
    deadline = time.monotonic() + 60
    while not condition():
        if time.monotonic() > deadline or job.child.poll() is not None:
            raise AssertionError(job.output())
        time.sleep(0.02)


def put_into_one_subnet(hosts):
    """Moves every host's gw1 to the switch and the subnet of its gw0: 10.77.0.101 and so on."""
    first, second = f"{hosts.prefix}-sw0", f"{hosts.prefix}-sw1"
    for host, name in enumerate(hosts.names):
        for command in (f"-n {second} link set p{host} nomaster",
                        f"-n {second} link set p{host} netns {first} name q{host}",
                        f"-n {first} link set q{host} master br0 up",
                        f"-n {name} addr flush dev gw1",
                        f"-n {name} addr add 10.77.0.{101 + host}/24 dev gw1"):
            subprocess.run(["ip", *command.split()], check=True)


class Rails(unittest.TestCase):
    def test_every_pair_of_hosts_is_connected_over_each_rail(self):
        with Hosts(3, "1gbit", 2) as hosts:
            job = hosts.launch(GRADWIRE, ["--interface", "gw"], ENDLESS)
            for host in range(3):
                wanted = {(f"10.77.{rail}.{host + 1}", f"10.77.{rail}.{other + 1}")
                          for rail in (0, 1) for other in range(3) if other != host}
                wait_until(lambda: wanted <= mesh(hosts, host), job)

    def test_an_operation_uses_all_rails(self):
        with Hosts(2, "1gbit", 2) as hosts:
            job = hosts.launch(GRADWIRE, ["--interface", "gw"], ENDLESS)
            for host in range(2):
                for interface in ("gw0", "gw1"):
                    wait_until(lambda: sent_bytes(hosts, host, interface) > 10_000_000, job)

    def test_two_rails_in_one_subnet_each_carry_their_own(self):
        with Hosts(2, "1gbit", 2) as hosts:
            put_into_one_subnet(hosts)
            job = hosts.launch(GRADWIRE, ["--interface", "gw0,gw1"], ENDLESS)
            for host in range(2):
                for interface in ("gw0", "gw1"):
                    wait_until(lambda: sent_bytes(hosts, host, interface) > 10_000_000, job)

    def test_hosts_with_fewer_rails_get_on_with_those_with_more(self):
        with Hosts(2, "1gbit", 2) as hosts:
            subprocess.run(["ip", "-n", hosts.names[1], "link", "set", "gw1", "down"], check=True)
            job = hosts.launch(GRADWIRE, ["--interface", "gw"], [
                GRADWIRE, "bench", "all_reduce", "--sizes", "4M", "--iterations", "3"])
            self.assertEqual(job.wait(), 0, job.output())
            lacking = rf"rank 1 \(host {hosts.names[1]}, .* has 1 of the chosen"
            self.assertRegex(job.output(), lacking)

    def test_a_rail_that_is_cut_costs_its_bandwidth_alone(self):
        with Hosts(3, "1gbit", 2) as hosts, tempfile.TemporaryDirectory() as folder:
            report = pathlib.Path(folder) / "rows.json"
            job = hosts.launch(GRADWIRE, ["--interface", "gw"], [
                GRADWIRE, "bench", "all_reduce", "--sizes", "8M", "--iterations", "100",
                "--json", report])
            for host in range(3):
                wait_until(lambda: sent_bytes(hosts, host, "gw1") > 10_000_000, job)
            hosts.cut(1, 1)
            self.assertEqual(job.wait(60), 0, job.output())
            self.assertEqual([row["wrong"] for row in json.loads(report.read_text())["rows"]], [0])
            # Each rank reports it, at most once per peer.
            said = re.findall(r"^\[(\d)\].*rail 1 is gone", job.output(), re.MULTILINE)
            self.assertEqual(set(said), {"0", "1", "2"}, job.output())
            self.assertLessEqual(len(said), 4, job.output())

    def test_a_rail_that_is_plugged_in_again_carries_data_again(self):
        self.check_recovery()

    def test_an_encrypted_rail_recovers_too(self):
        self.check_recovery("--encrypt")

    def check_recovery(self, *options):
        with Hosts(3, "1gbit", 2) as hosts, tempfile.TemporaryDirectory() as folder:
            report = pathlib.Path(folder) / "rows.json"
            job = hosts.launch(GRADWIRE, ["--interface", "gw", *options], [
                GRADWIRE, "bench", "all_reduce", "--sizes", "4M", "--iterations", "300",
                "--json", report])
            for host in range(3):
                wait_until(lambda: sent_bytes(hosts, host, "gw1") > 10_000_000, job)
            hosts.cut(1, 1)
            wait_until(lambda: "rail 1 is gone" in job.output(), job)
            hosts.uncut(1, 1)
            wait_until(lambda: "rail 1 is back" in job.output(), job)
            before = sent_bytes(hosts, 1, "gw1")
            wait_until(lambda: sent_bytes(hosts, 1, "gw1") > before + 10_000_000, job)
            self.assertEqual(job.wait(60), 0, job.output())
            self.assertEqual([row["wrong"] for row in json.loads(report.read_text())["rows"]], [0])

    def test_env_names_the_rails_of_a_host(self):
        with Hosts(1, "none", 2) as hosts:
            named = hosts.start(0, [GRADWIRE, "env"], {"GRADWIRE_INTERFACE": "gw"})
            self.assertEqual(named.wait(), 0)
            self.assertIn("rails=gw0:10.77.0.1,gw1:10.77.1.1", named.output())


if __name__ == "__main__":
    unittest.main(verbosity=2)
