"""The hosts used by the other tests: that they exist, are shaped, cut, and removed."""

import os
import signal
import subprocess
import sys
import time
import unittest

from harness import RSH, SCRIPT, Hosts

# A program that sends 4 MB to port 9000 of the first argument, and one that receives them.
SEND = """import socket, sys
with socket.create_connection((sys.argv[1], 9000), timeout=10) as s: s.sendall(bytes(4 << 20))"""
RECEIVE = """import socket
listener = socket.create_server(("", 9000))
print("listening", flush=True)
s, _ = listener.accept()
total = 0
while data := s.recv(1 << 20): total += len(data)
print("received", total)"""


def namespaces():
    listed = subprocess.run(["ip", "netns", "list"], text=True, stdout=subprocess.PIPE, check=True)
    return {line.split()[0] for line in listed.stdout.splitlines()}


class HostsTest(unittest.TestCase):
    def test_hosts_have_names_and_reach_each_other(self):
        with Hosts(3) as hosts:
            named = hosts.start(2, ["sh", "-c", f"hostname; getent hosts {hosts.names[0]}"])
            self.assertEqual(named.wait(), 0)
            self.assertEqual(named.output().split(), [hosts.names[2], "10.77.0.1", hosts.names[0]])
            receiver = hosts.start(0, [sys.executable, "-c", RECEIVE])
            receiver.wait_for("listening")
            sender = hosts.start(1, [sys.executable, "-c", SEND, "10.77.0.1"])
            self.assertEqual(sender.wait(), 0, sender.output())
            receiver.wait_for(f"received {4 << 20}")

    def test_a_cut_host_is_out_of_reach_until_it_is_plugged_in(self):
        with Hosts(2, "none") as hosts:
            ping = ["timeout", "1", "bash", "-c", "</dev/tcp/10.77.0.2/9"]
            self.assertEqual(hosts.start(0, ping).wait(), 1)  # Refused, so the host is reachable.
            hosts.cut(1)
            self.assertEqual(hosts.start(0, ping).wait(), 124)  # No answer.
            hosts.uncut(1)
            self.assertEqual(hosts.start(0, ping).wait(), 1)

    def test_every_rail_is_shaped_at_both_ends(self):
        with Hosts(2, "100mbit", 2) as hosts:
            self.assertEqual(hosts.script("show").count("rate 100Mbit"), 8)
            hosts.script("rate", "250mbit")
            self.assertEqual(hosts.script("show").count("rate 250Mbit"), 8)

    def test_one_host_or_one_rail_can_be_slower(self):
        with Hosts(3, "100mbit", 2) as hosts:
            hosts.script("rate", "50mbit", 1)
            self.assertEqual(hosts.script("show").count("rate 50Mbit"), 4)
            hosts.script("rate", "20mbit", "all", 1)
            shown = hosts.script("show")
            self.assertEqual((shown.count("rate 20Mbit"), shown.count("rate 50Mbit")), (6, 2))
            hosts.script("rate", "10mbit", 2, 0)
            shown = hosts.script("show")
            self.assertEqual((shown.count("rate 10Mbit"), shown.count("rate 100Mbit")), (2, 2))

    def test_the_set_and_its_processes_go_with_the_block(self):
        with Hosts(2, "none") as hosts:
            sleeper = hosts.start(1, ["sleep", "1000"])
            self.assertTrue(set(hosts.names) <= namespaces())
        self.assertEqual(sleeper.child.returncode, -signal.SIGKILL)
        self.assertFalse([name for name in namespaces() if name.startswith(hosts.prefix)])
        self.assertFalse(os.path.exists(f"/etc/netns/{hosts.names[0]}"))

    def test_the_set_goes_when_the_test_is_killed(self):
        program = ("import harness, time\nwith harness.Hosts(2, 'none') as h:\n"
                   "  print(h.prefix, flush=True); time.sleep(1000)")
        victim = subprocess.Popen([sys.executable, "-c", program], text=True,
                                  stdout=subprocess.PIPE, cwd=os.path.dirname(__file__))
        with victim.stdout:
            prefix = victim.stdout.readline().strip()
            self.assertIn(f"{prefix}-h1", namespaces())
            victim.kill()
            victim.wait()
        deadline = time.monotonic() + 10
        while any(name.startswith(prefix) for name in namespaces()):
            self.assertLess(time.monotonic(), deadline, f"{prefix} is still there")
            time.sleep(0.02)

    def test_sets_do_not_disturb_each_other(self):
        with Hosts(2, "none") as one:
            with Hosts(2, "none") as other:
                other.script("down")
                self.assertTrue(set(one.names) <= namespaces())

    def test_a_wrong_call_says_what_is_wrong(self):
        done = subprocess.run([SCRIPT, "gwtest", "up", "2", "fast"], text=True,
                              stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, 2)
        self.assertIn("2.5gbit", done.stderr)


class RshTest(unittest.TestCase):
    def rsh(self, *arguments):
        return subprocess.run([RSH, *arguments], text=True, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              env={**os.environ, "LEAKED": "yes"})

    def test_runs_a_shell_command_there_and_returns_its_status(self):
        with Hosts(1, "none") as hosts:
            done = self.rsh(hosts.names[0], "hostname;", "echo $LEAKED$PWD; exit 7")
            self.assertEqual((done.returncode, done.stdout.split()), (7, [hosts.names[0], "/"]))

    def test_an_unknown_host_is_an_error(self):
        done = self.rsh("gwnothere-h0", "true")
        self.assertEqual(done.returncode, 255)
        self.assertIn("gwnothere-h0", done.stderr)

    def test_the_command_outlives_a_killed_rsh_as_with_ssh(self):
        with Hosts(1, "none") as hosts:
            client = subprocess.Popen([RSH, hosts.names[0], "echo here; exec sleep 1000"],
                                      text=True, stdout=subprocess.PIPE)
            with client.stdout:
                self.assertEqual(client.stdout.readline(), "here\n")
                while not (before := hosts.processes(0, "/usr/bin/sleep")):
                    self.assertIsNone(client.poll())
                client.kill()
                client.wait()
            self.assertEqual(hosts.processes(0, "/usr/bin/sleep"), before)


if __name__ == "__main__":
    unittest.main(verbosity=2)
