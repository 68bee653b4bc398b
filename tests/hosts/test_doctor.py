"""gradwire doctor between hosts: it must report each planted fault, and nothing else."""

import importlib.metadata
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from harness import RSH, Hosts

GRADWIRE = pathlib.Path(os.environ["GRADWIRE_BIN"]) / "gradwire"
TRAINER = GRADWIRE.with_name("gradwire-torch")


def inside(namespace, *command):
    """Runs a command in a namespace; fails if the command fails."""
    subprocess.run(["ip", "netns", "exec", namespace, *command], check=True,
                   stdin=subprocess.DEVNULL)


def lose_packets(hosts, host):
    """Makes the host's interface drop one packet in sixteen: TCP packets by the IP header's
    identification, datagrams by the number of the doctor's probe."""
    def tc(*words):
        inside(hosts.names[host], "tc", *words)
    tc("qdisc", "replace", "dev", "gw0", "root", "handle", "1:", "htb", "default", "10", "r2q",
       "1000")
    for number in ("10", "99"):
        tc("class", "add", "dev", "gw0", "parent", "1:", "classid", f"1:{number}", "htb", "rate",
           "1gbit")
    tc("qdisc", "add", "dev", "gw0", "parent", "1:99", "handle", "99:", "blackhole")
    for protocol, size, place in (("6", "u16", "4"), ("17", "u8", "44")):
        tc("filter", "add", "dev", "gw0", "parent", "1:", "protocol", "ip", "u32", "match", "ip",
           "protocol", protocol, "0xff", "match", size, "0x0005", "0x000f", "at", place, "flowid",
           "1:99")


def drop_port(hosts, host, port):
    """Drops all packets for the port, as a firewall on the host would."""
    def rule(*words):
        inside(hosts.names[host], "ip", "rule", *words)
    rule("add", "pref", "20", "lookup", "local")
    rule("add", "pref", "10", "iif", "gw0", "ipproto", "tcp", "dport", str(port), "blackhole")
    rule("del", "pref", "0")


class Doctor(unittest.TestCase):
    def examine(self, hosts, *options, names=None, rsh=RSH):
        """Returns (exit status, output) of the doctor, started on host 0."""
        job = hosts.start(0, [GRADWIRE, "doctor", "--hosts", ",".join(names or hosts.names),
                              "--rsh", rsh, *options])
        return job.wait(120), job.output()

    def assert_found(self, examined, *patterns, wrong=1):
        """Checks that the doctor found `wrong` faults, and that its output matches the patterns."""
        status, output = examined
        self.assertEqual(output.count("ERROR: "), wrong, output)
        self.assertEqual(output.count("fix: "), wrong, output)
        for pattern in patterns:
            self.assertRegex(output, pattern)
        self.assertEqual(status, 1 if wrong else 0, output)

    def test_nothing_is_wrong_between_healthy_hosts(self):
        with Hosts(3) as hosts:
            self.assert_found(self.examine(hosts), "No problems found", wrong=0)
            for host in range(3):
                self.assertEqual(hosts.processes(host, GRADWIRE), [])

    def test_a_wrong_mtu_of_a_host(self):
        with Hosts(3) as hosts:
            inside(hosts.names[1], "ip", "link", "set", "dev", "gw0", "mtu", "1400")
            self.assert_found(
                self.examine(hosts),
                rf"the MTU of gw0 differs.*1400 on {hosts.names[1]}",
                rf"fix: on {hosts.names[1]}: ip link set dev gw0 mtu 1500")

    def test_a_black_hole_on_the_way(self):
        with Hosts(3) as hosts:
            inside(f"{hosts.prefix}-sw0", "ip", "link", "set", "dev", "p2", "mtu", "1300")
            self.assert_found(
                self.examine(hosts),
                rf"more than 13\d\d bytes are lost between {hosts.names[2]} and every other host",
                r"fix: .*ip link set dev gw0 mtu 13\d\d")

    def test_a_lossy_link(self):
        with Hosts(3) as hosts:
            lose_packets(hosts, 1)
            status, output = self.examine(hosts)
            self.assertEqual(status, 1)
            self.assertRegex(output, r"% of packets \(\d+ of \d+\) are lost between "
                             rf"{hosts.names[1]} and every other host, over gw0")
            self.assertRegex(output, "fix: .*ethtool -S gw0")

    def test_a_slow_link(self):
        with Hosts(3) as hosts:
            hosts.script("rate", "100mbit", 2)
            self.assert_found(
                self.examine(hosts),
                rf"link is slow between {hosts.names[2]} and every other host, over gw0: 9\d",
                "fix: .*ethtool gw0")

    def test_a_closed_port(self):
        with Hosts(3) as hosts:
            drop_port(hosts, 1, 29777)
            self.assert_found(
                self.examine(hosts, "--port", "29777"),
                rf"{hosts.names[0]}, {hosts.names[2]} cannot reach {hosts.names[1]} at "
                r"10.77.0.2:29777 \(gw0\): no answer",
                "fix: a firewall.*dport 29777 accept")

    def test_a_port_that_is_taken(self):
        program = ("import socket, time; s = socket.create_server(('10.77.0.2', 29777)); "
                   "print('listening', flush=True); time.sleep(1000)")
        with Hosts(2, "200mbit") as hosts:
            hosts.start(1, [sys.executable, "-c", program]).wait_for("listening")
            examined = self.examine(hosts, "--port", "29777")
            self.assert_found(
                examined,
                rf"ERROR: {hosts.names[1]}: cannot listen at 10.77.0.2:29777: another program",
                rf"fix: on {hosts.names[1]}: ss -lntup shows .* another one with --port")
            self.assertNotIn("--interface", examined[1])

    def test_a_master_port_that_is_taken(self):
        program = ("import socket, time; s = socket.create_server(('10.77.0.1', 29778)); "
                   "print('listening', flush=True); time.sleep(1000)")
        with Hosts(2, "200mbit") as hosts:
            hosts.start(0, [sys.executable, "-c", program]).wait_for("listening")
            self.assert_found(
                self.examine(hosts, "--master-port", "29778"),
                rf"ERROR: {hosts.names[0]}: rank 0 could not listen for the other ranks: "
                r"cannot listen at 10.77.0.1:29778: another program",
                rf"fix: on {hosts.names[0]}: ss -lntp .* another one with --master-port")

    def test_a_master_port_that_is_closed(self):
        with Hosts(3, "200mbit") as hosts:
            drop_port(hosts, 0, 29778)
            self.assert_found(
                self.examine(hosts, "--master-port", "29778"),
                rf"{hosts.names[1]}, {hosts.names[2]} cannot reach {hosts.names[0]} at "
                r"10.77.0.1:29778, where rank 0 listens: no answer",
                "fix: .*dport 29778 accept.*--master-port")

    def test_a_master_address_of_another_host(self):
        with Hosts(2, "200mbit") as hosts:
            self.assert_found(
                self.examine(hosts, "--master-addr", "10.77.0.2"),
                rf"{hosts.names[0]}: rank 0 could not listen for the other ranks: "
                "10.77.0.2 is not an address",
                "fix: .*--master-addr")

    def test_a_host_that_is_cut_off_from_the_others(self):
        with Hosts(3) as hosts:
            hosts.cut(1)  # The remote shell still works: it needs no network.
            self.assert_found(
                self.examine(hosts),
                rf"no connections between {hosts.names[1]} and every other host over gw0: for "
                rf"example, {hosts.names[2]} cannot reach {hosts.names[1]}",
                "fix: .*run jobs with --port 29400")

    def test_a_name_that_no_host_has(self):
        with Hosts(2, "none") as hosts:
            nobody = f"{hosts.prefix}-h9"
            status, output = self.examine(hosts, names=[*hosts.names, nobody])
            self.assertEqual(status, 1)
            self.assertRegex(output, rf"ERROR: {nobody}: .*there is no host {nobody}")
            self.assertIn("fix: the remote shell must work", output)

    def test_a_name_that_does_not_resolve_on_one_host(self):
        with Hosts(3, "none") as hosts:
            table = pathlib.Path(f"/etc/netns/{hosts.names[2]}/hosts")
            lines = table.read_text().splitlines(keepends=True)
            table.write_text("".join(line for line in lines if hosts.names[0] not in line))
            status, output = self.examine(hosts)
            self.assertEqual(status, 1)
            self.assertRegex(output,
                             rf"ERROR: {hosts.names[2]}: cannot find .*\"{hosts.names[0]}\"")
            self.assertRegex(output, rf"fix: add a line \"ADDRESS {hosts.names[0]}\"")

    def test_the_first_hosts_name_that_means_loopback(self):
        with Hosts(2, "none") as hosts:
            table = pathlib.Path(f"/etc/netns/{hosts.names[0]}/hosts")
            table.write_text(table.read_text().replace("10.77.0.1", "127.0.1.1"))
            status, output = self.examine(hosts)
            # `run` takes the address on the route to the other host.
            self.assertEqual(status, 0, output)
            job = hosts.launch(GRADWIRE, [], [GRADWIRE, "bench", "all_reduce", "--sizes", "4K",
                                              "--iterations", "3"])
            self.assertEqual(job.wait(), 0, job.output())
            status, output = self.examine(hosts, "--master-addr", hosts.names[0])
            self.assertEqual(status, 1)
            self.assertRegex(output, r"ERROR: .*loopback")
            self.assertIn("--master-addr", output)

    def test_the_loopback_interface_and_an_unknown_one(self):
        with Hosts(2, "none") as hosts:
            status, output = self.examine(hosts, "--interface", "lo")
            self.assertEqual(status, 1)
            self.assertRegex(output, rf"ERROR: {hosts.names[1]} would use its loopback interface")
            self.assertRegex(output, r"fix: .*--interface.*gw0 \(10.77.0.2\)")
            self.assert_found(self.examine(hosts, "--interface", "eth7"),
                              r"\"eth7\" is not the name or prefix of any interface",
                              r"fix: .*gw0 \(10.77.0.1\)", wrong=2)

    def test_cards_of_other_engines(self):
        with Hosts(2, "none", 2) as hosts:
            _, output = self.examine(hosts, "--interface", "gw")
            for name in hosts.names:
                self.assertRegex(output, rf"{name}: .*gw0 .*, gw1 .*\n  other engines: "
                                 "Gloo one of gw0,gw1 for each operation\n")
            self.assertNotIn("other engines", self.examine(hosts, "--interface", "gw1")[1])

    def test_one_of_two_interfaces_without_a_cable(self):
        with Hosts(2, "none", 2) as hosts:
            hosts.cut(1, 1)
            self.assert_found(self.examine(hosts, "--interface", "gw"),
                              rf"no connections from {hosts.names[0]} to {hosts.names[1]}, from "
                              rf"{hosts.names[1]} to {hosts.names[0]} over gw1: ",
                              r"cannot reach .* at 10.77.1.1:\d+ \(gw1\)")

    def examine_with(self, hosts, folder, file, program=GRADWIRE, *options):
        """On host 1, replaces one of our programs by `file`."""
        rsh = pathlib.Path(folder) / "rsh"
        rsh.write_text(f"""#!/bin/sh
case $1 in
  *-h1) exec unshare --mount sh -c 'mount --bind {file} {program} && exec {RSH} "$@"' sh "$@";;
esac
exec {RSH} "$@"
""")
        rsh.chmod(0o755)
        return self.examine(hosts, *options, rsh=rsh)

    def test_another_build_on_one_host(self):
        with Hosts(2, "200mbit") as hosts, tempfile.TemporaryDirectory() as folder:
            other = pathlib.Path(folder) / "gradwire"
            other.write_bytes(GRADWIRE.read_bytes() + b"one byte more makes another checksum")
            other.chmod(0o755)
            self.assert_found(self.examine_with(hosts, folder, other),
                              "different builds of gradwire",
                              rf"\(build [\w+]+, protocol \d+\) on {hosts.names[1]}",
                              "install the same build")

    @unittest.skipUnless(TRAINER.exists(), "built without libtorch")
    def test_another_pytorch_on_one_host(self):
        ours = subprocess.run([TRAINER, "--version"], check=True, text=True,
                              stdout=subprocess.PIPE).stdout
        with Hosts(2, "200mbit") as hosts, tempfile.TemporaryDirectory() as folder:
            other = pathlib.Path(folder) / "gradwire-torch"
            other.write_text("#!/bin/sh\necho gradwire 0.1.0, runs with PyTorch 1.13.1\n")
            other.chmod(0o755)
            self.assert_found(
                self.examine_with(hosts, folder, other, TRAINER), "different builds of gradwire",
                rf"different versions of PyTorch: .*1.13.1 on {hosts.names[1]}",
                rf"fix: .*torch==({ours.split()[-1]}|1.13.1)", wrong=2)
            other.write_text("#!/bin/sh\necho libtorch_cpu.so: no such file >&2\nexit 127\n")
            self.assert_found(
                self.examine_with(hosts, folder, other, TRAINER),
                rf"{hosts.names[1]}: gradwire train does not start: libtorch_cpu.so", wrong=2)

    def test_another_package_of_one_hosts_python(self):
        with Hosts(2, "200mbit") as hosts, tempfile.TemporaryDirectory() as folder:
            package = pathlib.Path(folder) / "gradwire"
            package.mkdir()
            (package / "__init__.py").write_text("raise ImportError('nobody needs it')")
            (package / "_build.py").write_text('VERSION = "0.1.0"\n')
            release = importlib.metadata.version("torch").split(".")[:2]
            core = package / "_torch_{}_{}".format(*release) / "_core.so"
            core.parent.mkdir()
            core.write_text("an extension")
            other = pathlib.Path(folder) / "other"
            other.write_text("another")
            self.assert_found(
                self.examine_with(hosts, folder, other, core,
                                  "--env", f"PYTHONPATH={folder}"),
                "Python has different packages: gradwire 0.1.0 "
                rf"\(extension \w+\) and PyTorch \S+ on gw\w+-h\d; gradwire 0.1.0",
                "fix: install the same wheel")

    def test_a_host_without_the_program(self):
        with Hosts(2, "none") as hosts, tempfile.TemporaryDirectory() as folder:
            other = pathlib.Path(folder) / "gradwire"
            other.write_text("not a program")
            other.chmod(0o644)
            self.assert_found(self.examine_with(hosts, folder, other),
                              rf"ERROR: {hosts.names[1]}: .*cannot be run there",
                              "install gradwire at the same path")

    def test_small_buffers_and_few_descriptors(self):
        with Hosts(2, "200mbit") as hosts, tempfile.TemporaryDirectory() as folder:
            few = pathlib.Path(folder) / "rsh"
            few.write_text(f'#!/bin/sh\nulimit -n 300\nexec {RSH} "$@"\n')
            few.chmod(0o755)
            inside(hosts.names[1], "sh", "-c",
                   "echo 4096 65536 131072 >/proc/sys/net/ipv4/tcp_rmem")
            self.assert_found(
                self.examine(hosts, rsh=few),
                rf"ERROR: {hosts.names[1]}: a process may open at most 300 files",
                "fix: .*hard nofile 65536",
                rf"ERROR: {hosts.names[1]}: TCP may buffer only 128 KiB",
                'fix: .*sysctl -w net.ipv4.tcp_rmem="4096', wrong=2)

    def test_as_the_ranks_of_a_job(self):
        with Hosts(3) as hosts:
            inside(hosts.names[1], "ip", "link", "set", "dev", "gw0", "mtu", "1400")
            job = hosts.launch(GRADWIRE, ["--no-prefix"], [GRADWIRE, "doctor"])
            self.assertEqual(job.wait(120), 1, job.output())
            self.assertRegex(job.output(), "ERROR: the MTU of gw0 differs.*1400 on rank 1")

    def test_as_the_ranks_of_a_job_with_a_port(self):
        with Hosts(2) as hosts:
            drop_port(hosts, 1, 29777)
            job = hosts.launch(GRADWIRE, ["--no-prefix", "--port", "29777"], [GRADWIRE, "doctor"])
            self.assert_found((job.wait(120), job.output()),
                              r"ERROR: rank 0 .* cannot reach rank 1 .* at 10.77.0.2:29777",
                              "fix: a firewall.*dport 29777 accept")


if __name__ == "__main__":
    unittest.main(verbosity=2)
