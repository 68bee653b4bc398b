"""gradwire probe between hosts: its measurements must match the hosts' configuration."""

import collections
import concurrent.futures
import contextlib
import ctypes
import fcntl
import json
import os
import pathlib
import select
import struct
import subprocess
import tempfile
import time
import unittest

from harness import RSH, Hosts

GRADWIRE = pathlib.Path(os.environ["GRADWIRE_BIN"]) / "gradwire"
MBIT = 1e6 / 8  # Bytes per second.
CLONE_NEWNET, TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x40000000, 0x400454CA, 2, 0x1000  # Linux constants.


def ip(*words):
    return subprocess.run(["ip", *words], check=True, text=True, stdout=subprocess.PIPE).stdout


def open_tap(namespace, name):
    """Creates a network interface in a namespace, which the calling thread enters for good. Reads
    return packets sent to the interface; writes inject received packets."""
    with open(f"/run/netns/{namespace}") as there:
        if ctypes.CDLL(None, use_errno=True).setns(there.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
    tap = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TAP | IFF_NO_PI))
    return tap


def carry(one, other, delay, stop):
    """Forwards packets in both directions with a delay of `delay` seconds, until `stop` ends."""
    late = collections.deque()
    while True:
        wait = max(0, late[0][0] - time.monotonic()) if late else None
        ready = select.select([one, other, stop], [], [], wait)[0]
        if stop in ready:
            return
        for end in ready:
            due = time.monotonic() + delay
            late.append((due, other if end == one else one, os.read(end, 1 << 16)))
        while late and late[0][0] <= time.monotonic():
            _, end, packet = late.popleft()
            os.write(end, packet)


@contextlib.contextmanager
def long_way(hosts, host, delay):
    """Delays all packets of a host by `delay` seconds, each way. Not every kernel has netem."""
    at, switch = hosts.names[host], f"{hosts.prefix}-sw0"
    address = ip("netns", "exec", at, "cat", "/sys/class/net/gw0/address").strip()
    ip("-n", at, "link", "del", "gw0")
    stop, stopping = os.pipe()
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        ends = (at, "gw0"), (switch, f"p{host}")
        taps = [thread.submit(open_tap, *end).result() for end in ends]
        ip("-n", at, "link", "set", "gw0", "address", address, "up")
        ip("-n", at, "addr", "add", f"{hosts.addresses[host]}/24", "dev", "gw0")
        ip("-n", switch, "link", "set", f"p{host}", "master", "br0", "up")
        carried = thread.submit(carry, *taps, delay, stop)
        try:
            yield
        finally:
            os.close(stopping)
            carried.result()
            for end in (stop, *taps):
                os.close(end)


class Probe(unittest.TestCase):
    def probe(self, hosts, *options, ranks=None):
        """Returns (topology.json, output) of a probe that must succeed."""
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
                # At most the rate of the slower end; how far below depends on the machine's load.
                self.assertLess(rate, 108 if 1 in (a, b) else 212, output)
                self.assertGreater(rate, 50 if 1 in (a, b) else 105, output)
                self.assertLessEqual(path["shortest_latency_us"], path["latency_us"])
                self.assertEqual((path["largest_packet"], path["rail"]), (1500, 0))
            # One machine, so one clock.
            for host in found["hosts"]:
                self.assertLessEqual(abs(host["clock_offset_us"]), host["clock_uncertainty_us"])
            self.assertLess(found["hosts"][1]["rails"][0]["bytes_per_second"], 108 * MBIT)
            self.assertGreater(found["hosts"][2]["rails"][0]["bytes_per_second"], 105 * MBIT)

    def test_a_long_way(self):
        with Hosts(3, "100mbit") as hosts, long_way(hosts, 1, 0.005):
            found, output = self.probe(hosts, "--seconds", "0.1")
            for path in found["paths"]:
                least, most = (5000, 10000) if 1 in (path["from"], path["to"]) else (1, 2500)
                self.assertGreater(path["shortest_latency_us"], least, output)
                self.assertLess(path["latency_us"], most, output)
            for host, least, most in ((1, 5000, 10000), (2, 1, 2500)):
                uncertainty = found["hosts"][host]["clock_uncertainty_us"]
                self.assertGreater(uncertainty, least)
                self.assertLess(uncertainty, most)
                self.assertLessEqual(abs(found["hosts"][host]["clock_offset_us"]), uncertainty)

    def test_each_direction_has_its_own_rate(self):
        with Hosts(3, "200mbit") as hosts:
            hosts.script("rate", "50mbit", 1, "--only", "sends")
            hosts.script("rate", "100mbit", 2, "--only", "receives")
            found, output = self.probe(hosts)
            for path in found["paths"]:
                rate = path["bytes_per_second"] / MBIT
                most = 50 if path["from"] == 1 else 100 if path["to"] == 2 else 200
                self.assertLess(rate, 1.08 * most, output)
                self.assertGreater(rate, 0.52 * most, output)

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
            self.assertEqual(alone.wait(), 2)
            self.assertIn("--hosts a,b,c", alone.output())


if __name__ == "__main__":
    unittest.main(verbosity=2)
