"""Federated learning on four hosts: a server, and three clients of which one dies in a round."""

import errno
import json
import os
import pathlib
import re
import struct
import subprocess
import tempfile
import time
import unittest

from harness import Hosts

BIN = pathlib.Path(os.environ["GRADWIRE_BIN"])
GRADWIRE, TRAINER = BIN / "gradwire", BIN / "gradwire-torch"
PORT, CLIENTS = 29500, 3
CONFIG = {"model": {"name": "mlp", "hidden": 16}, "rounds": 3,
          "partition": {"clients": CLIENTS, "held_out": 0.1},
          "round": {"ask": CLIENTS, "use": CLIENTS, "least": 2, "gather_s": 0.5, "window_s": 2,
                    "exchange_s": 2},
          "local": {"epochs": 40, "learning_rate": 0.05}, "update": {"bits": 8, "rotate": True}}


def write_images(folder, prefix, count):
    """IDX files of images with two white rows, whose place is the class."""
    labels = bytes(i * 7 % 10 for i in range(count))
    images = b"".join(bytes(56 * c) + b"\xff" * 56 + bytes(28 * 26 - 56 * c) for c in labels)
    (folder / f"{prefix}-images-idx3-ubyte").write_bytes(
        struct.pack(">4I", 0x803, count, 28, 28) + images)
    (folder / f"{prefix}-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 0x801, count) + labels)


class Federated(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="gradwire-federated-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        write_images(self.folder, "train", 600)
        write_images(self.folder, "t10k", 30)

    def enrol(self, name, address):
        file = self.folder / f"{name}.json"
        with open(file, "wb") as output:
            subprocess.run([GRADWIRE, "federate", "enrol", self.folder / "key", "--client", name,
                            "--server", f"{address}:{PORT}"], check=True, stdout=output)
        return file

    def serve(self, hosts, *options):
        server = hosts.start(0, [GRADWIRE, "federate", "serve", self.folder / "config.json",
                                 "--key", self.folder / "key", "--output", self.folder / "run",
                                 "--listen", f"{hosts.addresses[0]}:{PORT}",
                                 "--json", self.folder / "served.json", *options])
        server.wait_for("listening at")
        return server

    def client(self, hosts, host, identity, *options):
        return hosts.start(host, [GRADWIRE, "federate", "client", identity, "--data", self.folder,
                                  "--part", f"{max(host, 1)}/{CLIENTS}", *options])

    def start(self, hosts, config, *options):
        """Returns a server, its clients, and an identity for another client."""
        (self.folder / "config.json").write_text(json.dumps(config))
        address = hosts.addresses[0]
        identities = [self.enrol(f"client-{i}", address) for i in range(1, CLIENTS + 2)]
        server = self.serve(hosts)
        clients = [self.client(hosts, i, identities[i - 1], *options)
                   for i in range(1, hosts.count)] or [self.client(hosts, 0, identities[0])]
        return server, clients, identities[CLIENTS]

    def kill_in_round_2(self, hosts, server):
        """Kills the client on host 3 once it has noted that it is in the round."""
        state = self.folder / f"client-{CLIENTS}.state"
        server.wait_for("round 1 .*3 used")
        deadline = time.monotonic() + 30
        while json.loads(state.read_text())["last_round"] < 2:
            self.assertLess(time.monotonic(), deadline, server.output())
            time.sleep(0.01)
        hosts.kill(CLIENTS, TRAINER)

    def rounds_of(self, server, clients):
        """Waits for all processes, and returns the rounds."""
        self.assertEqual(server.wait(40), 0, server.output())
        for client in clients:
            self.assertEqual(client.wait(30), 0, client.output())
        rounds = json.loads((self.folder / "served.json").read_text())["rounds"]
        for one in rounds:
            self.assertEqual(one["used"] + one["dropped"] + one["stopped"], one["asked"], one)
        self.assertGreater(rounds[-1]["accuracy"], rounds[0]["accuracy"])
        self.assertTrue((self.folder / "run/model.safetensors").exists())
        return [(one["abandoned"], one["used"]) for one in rounds]

    def test_a_round_goes_on_without_a_client_that_is_killed(self):
        with Hosts(CLIENTS + 1) as hosts:
            server, clients, _ = self.start(hosts, CONFIG)
            self.kill_in_round_2(hosts, server)
            rounds = self.rounds_of(server, clients[:2])
            self.assertEqual(rounds, [(False, 3), (False, 2), (False, 2)], server.output())

    def test_a_secure_round_is_abandoned_if_too_few_are_left_and_the_next_has_all(self):
        config = {**CONFIG, "rounds": 2, "secure": {"neighbours": 2, "threshold": 2}}
        with Hosts(CLIENTS + 1) as hosts:
            server, clients, another = self.start(hosts, config, "--secure")
            self.kill_in_round_2(hosts, server)
            server.wait_for("round 2 abandoned")
            clients[2] = self.client(hosts, CLIENTS, another, "--secure")
            rounds = self.rounds_of(server, clients)
            self.assertEqual([one for one in rounds if not one[0]], [(False, 3)] * 2)
            self.assertIn("secure aggregation: 2 neighbours, threshold 2", server.output())

    def small_disk(self):
        """Mounts a file system of 256 KiB as the output folder, while the test runs."""
        disk = self.folder / "run"
        disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", disk], check=True)
        self.addCleanup(subprocess.run, ["umount", disk], check=True)
        return disk

    def fill_until_it_ends(self, disk, server):
        """Again and again: files that the server replaces free some space."""
        deadline = time.monotonic() + 30
        with open(disk / "ballast", "ab", buffering=0) as ballast:
            while server.child.poll() is None:
                self.assertLess(time.monotonic(), deadline, server.output())
                try:
                    ballast.write(bytes(4096))
                except OSError as error:
                    self.assertEqual(error.errno, errno.ENOSPC)
                    time.sleep(0.01)

    def test_a_full_disk_ends_the_server_which_goes_on_later(self):
        disk = self.small_disk()
        config = {**CONFIG, "rounds": 6, "round": {"ask": 1, "use": 1, "least": 1}}
        with Hosts(1) as hosts:
            server, clients, _ = self.start(hosts, config)
            server.wait_for("round 2 ")
            self.fill_until_it_ends(disk, server)
            self.assertEqual(server.wait(), 1, server.output())
            self.assertRegex(server.output(), "(?i)no space left.*free some space.*--resume")
            done = len(re.findall("round [0-9]+ .* 1 used", server.output()))
            (disk / "ballast").unlink()
            server = self.serve(hosts, "--resume")
            rounds = self.rounds_of(server, clients)
            self.assertEqual(rounds, [(False, 1)] * 6)
            # The checkpoint has all rounds, but the one in which there was no space.
            first = int(re.search("rounds ([0-9]+) to 6", server.output()).group(1))
            self.assertIn(first, (done, done + 1), server.output())


if __name__ == "__main__":
    unittest.main()
