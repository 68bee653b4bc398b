"""Several rails: multiple network interfaces per host."""

import json
import os
import pathlib
import re
import subprocess
import tempfile
import time
import unittest

from harness import RSH, Hosts

GRADWIRE = pathlib.Path(os.environ["GRADWIRE_BIN"]) / "gradwire"
ENDLESS = [GRADWIRE, "bench", "all_reduce", "--iterations", "1000000", "--sizes", "4M"]
LARGE = [*ENDLESS[:-1], "64M"]
MBIT = 1e6 / 8  # Bytes per second.


def mesh(hosts, host):
    """Returns {(local address, remote address)} of a host's connections to other hosts."""
    ends = {(own[0], other[0]) for own, other in hosts.connections(host)}
    return {(own, other) for own, other in ends if own != other}


def sent_bytes(hosts, host, interface):
    text = hosts.read(host, "/proc/net/dev")
    return int(re.search(interface + r":(?:\s+\d+){8}\s+(\d+)", text).group(1))


def rate(hosts, host, interface, seconds):
    """Returns the bytes per second that a host sends in the next `seconds`."""
    began, sent = time.monotonic(), sent_bytes(hosts, host, interface)
    time.sleep(seconds)
    sent = sent_bytes(hosts, host, interface) - sent
    return sent / (time.monotonic() - began)


def counters_of(hosts, host):
    """Returns the path of a host's counters, readable without a new process while gradwire runs."""
    return pathlib.Path(f"/proc/{hosts.processes(host, GRADWIRE)[0]}/net/dev")


def rates_at_once(counters, interfaces, seconds):
    """Returns rate() of several interfaces, also for times too short to start a process."""
    def sent():
        text = counters.read_text()
        return [int(re.search(name + r":(?:\s+\d+){8}\s+(\d+)", text).group(1))
                for name in interfaces]
    began, before = time.monotonic(), sent()
    time.sleep(seconds)
    after, took = sent(), time.monotonic() - began
    return [(end - start) / took for start, end in zip(before, after)]


def rate_at_once(counters, interface, seconds):
    return rates_at_once(counters, (interface,), seconds)[0]


def both_full(rates):
    """Returns true if rails of 500 and 200 Mb/s are fully used."""
    return rates[0] > 0.85 * 500 * MBIT and rates[1] > 0.85 * 200 * MBIT


def slow_down(hosts, host, rail, rate):
    """Sets the rate at both ends of a link within milliseconds. Returns the time afterwards."""
    for namespace, interface, limit in ((hosts.names[host], f"gw{rail}", "4mb"),
                                        (f"{hosts.prefix}-sw{rail}", f"p{host}", "524288")):
        subprocess.run(["tc", "-n", namespace, "qdisc", "replace", "dev", interface, "root", "tbf",
                        "rate", rate, "burst", "131072", "limit", limit], check=True)
    return time.monotonic()


def wait_until(condition, job):
    deadline = time.monotonic() + 20
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

    def test_unequal_rails_are_both_full(self):
        """Three of twenty seconds suffice: on a busy machine the CPU is sometimes the limit."""
        with Hosts(2, "500mbit", 2) as hosts:
            hosts.script("rate", "200mbit", "all", 1)
            job = hosts.launch(GRADWIRE, ["--interface", "gw"], LARGE)
            wait_until(lambda: sent_bytes(hosts, 1, "gw0") > 150_000_000, job)
            counters, seconds = counters_of(hosts, 1), []
            while sum(map(both_full, seconds)) < 3 and len(seconds) < 20:
                seconds.append(rates_at_once(counters, ("gw0", "gw1"), 1))
            self.assertEqual(sum(map(both_full, seconds)), 3, seconds)

    def test_a_rail_that_slows_is_relieved_within_100_ms(self):
        with Hosts(2, "1gbit", 2) as hosts:
            job = hosts.launch(GRADWIRE, ["--interface", "gw"], LARGE)
            wait_until(lambda: sent_bytes(hosts, 1, "gw1") > 200_000_000, job)
            counters = counters_of(hosts, 1)
            shares = []
            for _ in range(3):  # The median: other processes may disturb a short measurement.
                hosts.script("rate", "1gbit", 1, 1)
                before = rate(hosts, 1, "gw0", 1)
                slowed = slow_down(hosts, 1, 1, "200mbit")
                time.sleep(max(0, slowed + 0.1 - time.monotonic()))
                shares.append(rate_at_once(counters, "gw0", 0.1) / before)
            # If each rail carried half, the faster one would be idle for four fifths of the time.
            self.assertGreater(sorted(shares)[1], 0.7, shares)

    def test_env_names_the_rails_of_a_host(self):
        with Hosts(1, "none", 2) as hosts:
            named = hosts.start(0, [GRADWIRE, "env"], {"GRADWIRE_INTERFACE": "gw"})
            self.assertEqual(named.wait(), 0)
            self.assertIn("rails=gw0:10.77.0.1,gw1:10.77.1.1", named.output())


if __name__ == "__main__":
    unittest.main(verbosity=2)
