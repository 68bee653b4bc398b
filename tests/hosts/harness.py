"""Several network hosts for a test, and jobs that run on them.

    with Hosts(4, rate="1gbit") as hosts:
        ranks = hosts.start_ranks([gradwire, "bench", "all_reduce"])
        ranks[0].wait_for("100000000")
        hosts.cut(2)

Hosts are the network namespaces of hosts.sh. They are removed when the `with` block ends, and also
when a signal ends the test: a separate process removes them after this one has exited.
"""

import os
import pathlib
import re
import secrets
import signal
import socket
import subprocess
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
SCRIPT = HERE / "hosts.sh"
RSH = HERE / "rsh.sh"
MASTER_PORT = 29400  # Certainly free: nothing else runs on these hosts.


class Process:
    """A program whose standard output and error go to a file, which can be read while it runs."""

    def __init__(self, command, name, environment=None):
        self.name = name
        self.log = tempfile.NamedTemporaryFile(prefix="gradwire-log-", mode="w+")
        self.child = subprocess.Popen(
            [str(word) for word in command], stdin=subprocess.DEVNULL, stdout=self.log,
            stderr=subprocess.STDOUT, start_new_session=True,
            env={**os.environ, **(environment or {})})

    def output(self):
        return pathlib.Path(self.log.name).read_text(errors="replace")

    def wait_for(self, pattern, seconds=60):
        """Returns once the output matches `pattern`; fails if the program exits before."""
        deadline = time.monotonic() + seconds
        while not re.search(pattern, self.output()):
            ended = self.child.poll() is not None
            if (ended and not re.search(pattern, self.output())) or time.monotonic() > deadline:
                how = f"ended with {self.child.returncode}" if ended else "still runs"
                raise AssertionError(f"{self.name} {how} without {pattern!r}:\n{self.output()}")
            time.sleep(0.01)

    def wait(self, seconds=60):
        """Returns the exit status; if negative, the signal that ended it."""
        try:
            return self.child.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} still runs after {seconds} s:\n{self.output()}")

    def stop(self):
        if self.child.poll() is None:
            os.killpg(self.child.pid, signal.SIGKILL)
            self.child.wait()
        self.log.close()


class Hosts:
    """`count` hosts, each with `nics` links of `rate`, for the duration of a `with` block."""

    def __init__(self, count, rate="1gbit", nics=1, *options):
        self.count = count
        self.prefix = "gw" + secrets.token_hex(4)
        self.names = [f"{self.prefix}-h{i}" for i in range(count)]
        self.addresses = [f"10.77.0.{i + 1}" for i in range(count)]
        self._up = ["up", str(count), rate, str(nics), *options]
        self._processes = []

    def __enter__(self):
        if os.geteuid() != 0:
            raise AssertionError("network namespaces need root; without it configure with "
                                 "-DGRADWIRE_HOST_TESTS=OFF")
        # Reads until this process, which holds the pipe's other end, has exited for any reason.
        self._undertaker = subprocess.Popen(
            ["sh", "-c", 'cat >/dev/null; exec "$0" "$1" down', SCRIPT, self.prefix],
            stdin=subprocess.PIPE, start_new_session=True)
        try:
            self.script(*self._up)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self._undertaker.stdin.close()
        self._undertaker.wait()
        for process in self._processes:
            process.stop()

    def script(self, verb, *arguments):
        """Runs a command of hosts.sh; returns its output."""
        done = subprocess.run([SCRIPT, self.prefix, verb, *[str(a) for a in arguments]], text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
        if done.returncode:
            raise AssertionError(f"hosts.sh {verb} failed (network namespaces not allowed here? "
                                 f"then -DGRADWIRE_HOST_TESTS=OFF):\n{done.stdout}")
        return done.stdout

    def cut(self, host, *rail):
        self.script("cut", host, *rail)

    def uncut(self, host, *rail):
        self.script("uncut", host, *rail)

    def start(self, host, command, environment=None):
        """Starts a command on a host."""
        process = Process([SCRIPT, self.prefix, "run", str(host), *command],
                          f"{command[0]} on host {host}", environment)
        self._processes.append(process)
        return process

    def start_ranks(self, command, environment=None):
        """Starts one rank on every host with torchrun's environment but without a launcher, so that
        every rank's output and exit status are its own."""
        job = {"WORLD_SIZE": str(self.count), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1",
               "MASTER_ADDR": self.addresses[0], "MASTER_PORT": str(MASTER_PORT),
               "GRADWIRE_SECRET": secrets.token_hex(16), **(environment or {})}
        return [self.start(rank, command, {**job, "RANK": str(rank)}) for rank in range(self.count)]

    def launch(self, gradwire, options, command):
        """Starts `gradwire run` on host 0, with one rank on every host."""
        return self.start(0, [gradwire, "run", "-n", str(self.count), "--hosts",
                              ",".join(self.names), "--rsh", RSH, *options, "--", *command])

    def read(self, host, path):
        """Returns a file as seen on a host, for example the host's own files in /proc/net."""
        return subprocess.run(["ip", "netns", "exec", self.names[host], "cat", path], text=True,
                              stdout=subprocess.PIPE, check=True).stdout

    def listeners(self, host):
        """Returns (address, port) of each listening TCP socket on a host."""
        return [end for end, _, state in self._tcp(host) if state == "0A"]

    def connections(self, host, under_way=False):
        """Returns ((address, port), (address, port)), local and remote, of a host's TCP
        connections: the established ones, or those whose SYN is not answered yet."""
        wanted = "02" if under_way else "01"
        return [(own, other) for own, other, state in self._tcp(host) if state == wanted]

    def _tcp(self, host):
        lines = [line.split() for line in self.read(host, "/proc/net/tcp").splitlines()[1:]]
        return [(_end(line[1]), _end(line[2]), line[3]) for line in lines]

    def processes(self, host, program):
        """Returns the process ids of a program on a host."""
        listed = subprocess.run(["ip", "netns", "pids", self.names[host]], text=True,
                                stdout=subprocess.PIPE, check=True).stdout.split()
        return [int(pid) for pid in listed if _runs(pid, program)]

    def kill(self, host, program, signal_number=signal.SIGKILL):
        """Sends a signal to a program's processes on a host; there must be at least one."""
        found = self.processes(host, program)
        if not found:
            raise AssertionError(f"no {program} on host {host}")
        for pid in found:
            os.kill(pid, signal_number)


def _end(text):
    """Converts "0100007F:6D60", as in /proc/net/tcp, to an address and a port."""
    address, port = text.split(":")
    return socket.inet_ntoa(bytes.fromhex(address)[::-1]), int(port, 16)


def _runs(pid, program):
    try:
        return os.path.samefile(f"/proc/{pid}/exe", program)
    except OSError:  # It has just exited.
        return False
