"""Rendezvous: in the job's own store if there is a secret, and the warnings if there is none."""

import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import textwrap
import unittest

GRADWIRE = os.environ.get("GRADWIRE_PROGRAM", "gradwire")
WARNING = "any process that reaches the c10d store"

BEGINNING = """
import datetime, os, sys, threading
import torch, torch.distributed as dist, gradwire
from gradwire import _core

def store():
    found = dist.distributed_c10d._get_default_store()
    while hasattr(found, "underlying_store"):
        found = found.underlying_store
    return found

def listening():
    inodes = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            inodes.add(os.readlink("/proc/self/fd/" + name))
        except OSError:
            continue
    found = []
    for table in ("tcp", "tcp6"):
        with open("/proc/self/net/" + table) as lines:
            rows = [line.split() for line in list(lines)[1:]]
        found += [row[1] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in inodes]
    return found
"""

USES = """
dist.init_process_group("gradwire")
rank, size = dist.get_rank(), dist.get_world_size()
assert isinstance(store(), _core.GradwireStore), store()
assert (store().host, store().port) == ("127.0.0.1", int(os.environ["MASTER_PORT"]))
wide = [at for at in listening() if not at.startswith("0100007F:")]  # 127.0.0.1
assert not wide, f"listens beyond the named address: {wide}"
total = torch.tensor([rank + 1.0])
dist.all_reduce(total)
pairs = [dist.new_group([0, 1]), dist.new_group([1, 2])]
for members, pair in ((0, 1), pairs[0]), ((1, 2), pairs[1]):
    if rank in members:
        sum_of_two = torch.tensor([float(rank)])
        dist.all_reduce(sum_of_two, group=pair)
        assert sum_of_two.item() == sum(members), sum_of_two
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
model(torch.ones(4, 2)).sum().backward()
gathered = [None] * size
dist.all_gather_object(gathered, {"rank": rank})
assert [each["rank"] for each in gathered] == list(range(size))
dist.monitored_barrier(dist.group.WORLD)
dist.barrier()
gloo = dist.new_group(backend="gloo")  # Which meets in the same store.
dist.barrier(group=gloo)
assert store().add("sum", rank + 1) > 0
store().wait(["all"], datetime.timedelta(seconds=60)) if rank else store().set("all", "x")
dist.barrier()
assert store().get("sum") == b"6", store().get("sum")
print(f"total {total.item()}", flush=True)
dist.destroy_process_group()
"""

STORE = """
dist.init_process_group("gradwire")
rank, kept = dist.get_rank(), store()
other = threading.Thread(target=lambda: kept.wait(["by another thread"]))
other.start()
kept.set("by another thread", b"\\0\\xff")
other.join()
dist.barrier()
assert kept.get("by another thread") == b"\\0\\xff"
again, _, _ = next(dist.rendezvous("env://"))  # init_rpc does so beside a process group.
assert again.get("by another thread") == b"\\0\\xff"
dist.barrier()
if rank == 0:
    assert kept.compare_set("c", "expected", "new") == b"expected"
    assert not kept.check(["c"])
    assert kept.compare_set("c", "", "first") == b"first"
    assert kept.compare_set("c", "wrong", "second") == b"first"
    assert kept.compare_set("c", "first", "second") == b"second"
    kept.append("c", " third")
    assert kept.get("c") == b"second third"
    before = kept.num_keys()
    assert kept.delete_key("c") and not kept.delete_key("c")
    assert kept.num_keys() == before - 1
    kept.multi_set(["m1", "m2"], ["1", "2"])
    assert kept.multi_get(["m1", "m2"]) == [b"1", b"2"]
    assert kept.clone().get("m1") == b"1"
    for wrong in (lambda: kept.wait(["never"], datetime.timedelta(milliseconds=50)),
                  lambda: kept.add("by another thread", 1)):
        try:
            wrong()
        except (dist.DistStoreError, ValueError) as error:
            assert "never" in str(error) or "not an integer" in str(error), error
        else:
            sys.exit("it went through")
dist.destroy_process_group()
print("done", flush=True)
"""

AGAIN = """
for turn in range(3):
    dist.init_process_group("gradwire")
    assert store().add("turns", 1) <= dist.get_world_size(), "of the last time"
    total = torch.ones(1)
    dist.all_reduce(total)
    dist.destroy_process_group()
print("done", flush=True)
"""

BY_HAND = """
dist.init_process_group("gradwire", init_method=f"gradwire://127.0.0.1:{sys.argv[1]}",
                        rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
assert (store().host, store().port) == ("127.0.0.1", int(sys.argv[1]))
total = torch.ones(1)
dist.all_reduce(total)
dist.destroy_process_group()
print(f"total {total.item()}", flush=True)
"""

UNDER_MPIRUN = """
dist.init_process_group("gradwire", init_method="gradwire://")
assert isinstance(store(), _core.GradwireStore), store()
total = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(total)
dist.destroy_process_group()
assert total.item() == 3, total
"""

UNDER_TORCHRUN = """
dist.init_process_group("gradwire")
assert isinstance(store(), dist.TCPStore), store()
second = dist.new_group()
total = torch.ones(1)
dist.all_reduce(total, group=second)
dist.destroy_process_group()
print(f"total {total.item()}", flush=True)
"""

DIES = """
dist.init_process_group("gradwire")
if dist.get_rank() == 0:
    os._exit(3)
try:
    store().get("never")
except RuntimeError as error:
    assert "lost the job's store of rank 0" in str(error), error
    print("heard", flush=True)
os._exit(0)
"""


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Meeting(unittest.TestCase):
    def run_program(self, launcher, text, *arguments, environment=None, status=0):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "program.py"
            file.write_text(textwrap.dedent(BEGINNING + text))
            command = [*launcher, file, *arguments]
            done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                                  timeout=200, check=False,
                                  env=dict(os.environ, OMP_NUM_THREADS="1", **(environment or {})))
        output = done.stdout + done.stderr
        self.assertEqual(done.returncode, status, output)
        return output

    def gradwire_run(self, text, *options, ranks=3, arguments=(), **more):
        launcher = [GRADWIRE, "run", "-n", ranks, *options, sys.executable]
        return self.run_program(launcher, text, *arguments, **more)

    def test_gradwire_run_leaves_no_open_store(self):
        output = self.gradwire_run(USES)
        self.assertEqual(output.count("total 6.0"), 3, output)
        self.assertNotIn(WARNING, output)

    def test_one_port_suffices(self):
        output = self.gradwire_run(USES, "--port", free_port())
        self.assertEqual(output.count("total 6.0"), 3, output)

    def test_the_store_does_what_those_of_c10d_do(self):
        self.assertEqual(self.gradwire_run(STORE).count("done"), 3)

    def test_a_group_can_be_made_again(self):
        self.assertEqual(self.gradwire_run(AGAIN).count("done"), 3)

    def test_an_address_by_hand(self):
        output = self.gradwire_run(BY_HAND, ranks=2, arguments=[free_port()])
        self.assertEqual(output.count("total 2.0"), 2, output)

    def test_under_mpirun_by_what_it_says(self):
        """Ranks read mpirun's variables; the secret is the user's key, in the test's home."""
        with tempfile.TemporaryDirectory() as home:
            file = pathlib.Path(home) / "program.py"
            file.write_text(BEGINNING + UNDER_MPIRUN)
            given = {"HOME": home, "XDG_RUNTIME_DIR": "", "XDG_CACHE_HOME": "",
                     "MASTER_PORT": str(free_port()), "OMPI_COMM_WORLD_SIZE": "2",
                     "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "OMP_NUM_THREADS": "1"}
            ranks = [subprocess.Popen(
                [sys.executable, str(file)], text=True, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=dict(os.environ, OMPI_COMM_WORLD_RANK=str(rank),
                         OMPI_COMM_WORLD_LOCAL_RANK=str(rank), **given)) for rank in range(2)]
            for rank in ranks:
                output, _ = rank.communicate(timeout=200)
                self.assertEqual(rank.returncode, 0, output)

    def test_ranks_hear_that_rank_0_has_died(self):
        output = self.gradwire_run(DIES, "--grace", 60, ranks=2, status=3)
        self.assertIn("heard", output)

    def test_a_short_secret_is_for_the_loopback_alone(self):
        text = 'dist.init_process_group("gradwire")'
        elsewhere = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "192.0.2.1",
                     "MASTER_PORT": "1234", "GRADWIRE_SECRET": "guess"}
        output = self.run_program([sys.executable], text, environment=elsewhere, status=1)
        self.assertRegex(output, "ValueError.*GRADWIRE_SECRET has 5 characters.*openssl")
        option = 'dist.init_process_group("gradwire", pg_options=gradwire.Options(secret="a"), ' \
                 'init_method="file://" + sys.argv[1] + "/store", rank=0, world_size=2)'
        with tempfile.TemporaryDirectory() as folder:
            output = self.run_program([sys.executable], option, folder, status=1,
                                      environment={"MASTER_ADDR": "192.0.2.1"})
        self.assertRegex(output, "ValueError.*has 1 characters.*openssl")

    def torchrun(self, address, **environment):
        launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", 2,
                    "--rdzv-backend", "static", "--master-addr", address, "--master-port",
                    free_port()]
        output = self.run_program(launcher, UNDER_TORCHRUN, environment=environment)
        self.assertEqual(output.count("total 2.0"), 2, output)
        return output

    def test_under_torchrun_the_open_store_is_said_once(self):
        # The loopback through an address that does not look like it.
        output = self.torchrun("0.0.0.0")
        said = re.findall(WARNING + " at 0.0.0.0.*GRADWIRE_SECRET=.*openssl rand", output)
        self.assertEqual(len(said), 1, output)

    def test_on_the_loopback_and_with_a_secret_there_is_nothing_to_say(self):
        self.assertNotIn(WARNING, self.torchrun("127.0.0.1"))
        self.assertNotIn(WARNING, self.torchrun("0.0.0.0", GRADWIRE_SECRET="0123456789abcdef"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
