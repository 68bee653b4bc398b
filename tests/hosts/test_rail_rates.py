"""Rates of several rails, which other tests beside them would change."""

import pathlib
import re
import subprocess
import time
import unittest

from harness import Hosts
from test_rails import ENDLESS, GRADWIRE, sent_bytes, wait_until

LARGE = [*ENDLESS[:-1], "64M"]
MBIT = 1e6 / 8  # Bytes per second.


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


class RailRates(unittest.TestCase):
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


if __name__ == "__main__":
    unittest.main(verbosity=2)
