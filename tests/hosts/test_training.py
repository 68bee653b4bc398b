"""Training across four hosts, without faults and with a host or a link that fails."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from harness import RSH, Hosts

BIN = pathlib.Path(os.environ["GRADWIRE_BIN"])
GRADWIRE, TRAINER = BIN / "gradwire", BIN / "gradwire-torch"
CONFIG = pathlib.Path(__file__).resolve().parent.parent.parent / "examples/fashion_mnist.json"


# A rank whose store is c10d's, as under torchrun.
RANK_OF_TORCHRUN = """
import os, time, torch, torch.distributed as dist, gradwire
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
time.sleep(rank / 2)  # Rank 0 waits.
store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), size, rank == 0,
                      wait_for_workers=False)
dist.init_process_group("gradwire", store=store, rank=rank, world_size=size)
x = torch.ones(1000)
dist.all_reduce(x)
assert x[0] == size
dist.destroy_process_group()
"""


def training(folder, *settings):
    words = [GRADWIRE, "train", CONFIG, "--output", folder]
    for setting in ("data.limit=2048", *settings):
        words += ["--set", setting]
    return words


class Training(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="gradwire-training-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_python_ranks_where_the_first_hosts_name_is_loopback(self):
        with Hosts(3) as hosts:
            table = pathlib.Path(f"/etc/netns/{hosts.names[0]}/hosts")
            table.write_text(table.read_text().replace(hosts.addresses[0], "127.0.1.1"))
            ranks = hosts.start_ranks([sys.executable, "-c", RANK_OF_TORCHRUN],
                                      {"MASTER_ADDR": hosts.names[0],
                                       "PYTHONPATH": str(BIN.parent / "python")})
            for rank in ranks:
                self.assertEqual(rank.wait(), 0, rank.output())
                self.assertNotIn("timed out", rank.output())

    def test_four_hosts_learn_what_four_local_processes_learn_bit_for_bit(self):
        # One core, hence one thread, per rank: with more threads libtorch sums in another order. So
        # do other algorithms; the tuner chooses different ones within a machine and between hosts.
        one_core = ["env", "GRADWIRE_ALGORITHM=ring",
                    "sh", "-c", 'exec taskset -c $((${RANK:-0} % $(nproc))) "$0" "$@"']
        subprocess.run([*one_core, *training(self.folder / "local", "epochs=1"), "-n", "4"],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with Hosts(4) as hosts:
            job = hosts.launch(GRADWIRE, [],
                               [*one_core, *training(self.folder / "hosts", "epochs=1")])
            self.assertEqual(job.wait(120), 0, job.output())
            self.assertIn("Trained on 4 ranks", job.output())
        models = [(self.folder / where / "model.safetensors").read_bytes()
                  for where in ("local", "hosts")]
        self.assertEqual(models[0], models[1])

    def test_two_levels_have_the_same_losses(self):
        losses = {}
        with Hosts(2) as hosts:
            names = ",".join(f"{name}:2" for name in hosts.names)
            for inside in ("", "own"):
                folder = self.folder / f"inside-{inside}"
                job = hosts.start(0, [*training(folder, "epochs=1", f"inside={inside}"), "-n", "4",
                                      "--hosts", names, "--rsh", RSH],
                                  {"OMP_NUM_THREADS": "1"})
                self.assertEqual(job.wait(120), 0, job.output())
                record = json.loads((folder / "run.json").read_text())
                losses[inside] = record["steps"]["loss"]
        self.assertEqual(len(losses[""]), len(losses["own"]))
        for one, other in zip(losses[""], losses["own"], strict=True):
            self.assertAlmostEqual(one, other, delta=1e-5)

    def start(self, hosts):
        """Returns ranks that are training without end."""
        ranks = hosts.start_ranks(training(self.folder, "epochs=1000000"))
        ranks[0].wait_for(r"step [1-9]")
        return ranks

    def assert_all_name(self, hosts, ranks, lost):
        place = rf"rank {lost} \(host {hosts.names[lost]}, {hosts.addresses[lost]}:\d+ over gw0\)"
        for rank, process in enumerate(ranks):
            if rank != lost:
                self.assertEqual(process.wait(30), 1, process.output())
                self.assertRegex(process.output(), place, f"what rank {rank} said")

    def test_a_killed_host_is_named_on_every_rank(self):
        with Hosts(4) as hosts:
            ranks = self.start(hosts)
            hosts.kill(2, TRAINER)
            self.assert_all_name(hosts, ranks, 2)

    def test_a_cut_link_is_named_on_every_rank(self):
        with Hosts(4) as hosts:
            ranks = self.start(hosts)
            hosts.cut(3)
            self.assert_all_name(hosts, ranks, 3)

    def test_a_hybrid_ends_when_a_host_dies_and_continues_in_another_layout(self):
        hybrid = ["mesh.pipeline=2", "zero.stage=1", "pipeline.schedule=zero_bubble",
                  "batch_size=64", "epochs=1000"]
        with Hosts(4) as hosts:
            job = hosts.launch(GRADWIRE, [],
                               training(self.folder, *hybrid, "checkpoint_every=4"))
            self.wait_for_checkpoint(job)
            hosts.kill(3, TRAINER)
            self.assertNotEqual(job.wait(60), 0, "a rank was lost")
            for how in (signal.SIGKILL, signal.SIGSTOP):
                self.assert_lost_in_the_pipeline(hosts, training(
                    self.folder, *hybrid, "resume=auto", "checkpoint_every=1000000"), how)
        subprocess.run([*training(self.folder, "mesh.pipeline=2", "batch_size=64", "epochs=1",
                                  "resume=auto"), "-n", "2"],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.assertTrue((self.folder / "model.safetensors").exists())

    def assert_lost_in_the_pipeline(self, hosts, command, how):
        """Repeats until the signal hits ranks that wait for each other in the pipeline, and not in
        the collectives between two steps, whose errors name no micro-batch."""
        outputs = []
        for _ in range(5):
            job = hosts.launch(GRADWIRE, [], command)
            job.wait_for(r"step \d+/32")
            hosts.kill(3, TRAINER, how)
            self.assertNotEqual(job.wait(60), 0, "a rank was lost")
            outputs.append(job.output())
            if re.search(r"(activation|gradient) of micro-batch \d+ from stage \d to stage \d",
                         outputs[-1]):
                return
        self.fail("no error names a micro-batch:\n" + "\n".join(outputs))

    def serving(self, *settings):
        return training(self.folder, "servers.count=1", "servers.rate=inverse", "batch_size=96",
                        "evaluate_every=0", "optimizer.learning_rate=0.01", *settings)

    def test_workers_that_die_end_nobody_else_in_mode_async(self):
        with Hosts(4) as hosts:
            job = hosts.launch(GRADWIRE, ["--servers", "1"],
                               self.serving("servers.mode=async", "epochs=12"))
            job.wait_for(r"step [1-9]")
            for host in (1, 0):  # Then the second is the first worker that lives.
                hosts.kill(host, TRAINER)
                job.wait_for(rf"rank {host} on host {hosts.names[host]} .*SIGKILL.*"
                             "; the others go on without it")
            self.assertEqual(job.wait(120), 0, job.output())
            # A batch of a worker that died may have been applied to some units, and again to all.
            self.assertRegex(job.output(), "Trained on 3 ranks: (768|769|770) steps")
        self.assertTrue((self.folder / "model.safetensors").exists())

    def test_a_group_that_loses_a_member_ends_alone(self):
        with Hosts(5) as hosts:
            job = hosts.launch(GRADWIRE, ["--servers", "1"],
                               self.serving("servers.mode=async", "servers.groups=2", "epochs=20"))
            job.wait_for(r"step [1-9]")
            hosts.kill(3, TRAINER)
            self.assertEqual(job.wait(120), 0, job.output())
            for host in (2, 3):
                self.assertRegex(job.output(), rf"rank {host} on host {hosts.names[host]} .*"
                                               "; the others go on without it")
            self.assertIn("Trained on 4 ranks", job.output())

    def test_a_server_or_all_workers_that_die_end_the_job(self):
        with Hosts(3) as hosts:
            for lost, why in (([2], "rank 2 on host"), ([0, 1], "all workers are lost")):
                job = hosts.launch(GRADWIRE, ["--servers", "1"],
                                   self.serving("servers.mode=ssp:2", "epochs=1000000"))
                job.wait_for(r"step [1-9]")
                for host in lost:
                    hosts.kill(host, TRAINER)
                self.assertNotEqual(job.wait(60), 0, "the job cannot go on")
                self.assertIn(why, job.output())

    def wait_for_checkpoint(self, job, seconds=60):
        deadline = time.monotonic() + seconds
        while not any(self.folder.glob("checkpoints/step-*")):
            if job.child.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"no checkpoint:\n{job.output()}")
            time.sleep(0.05)


if __name__ == "__main__":
    unittest.main(verbosity=2)
