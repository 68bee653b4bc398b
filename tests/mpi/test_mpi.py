"""Jobs over MPI: every MPI that is installed, its own launcher, real processes.

usage: test_mpi.py BUILD_FOLDER [unittest arguments]
"""

import functools
import json
import os
import pathlib
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
GRADWIRE, RANKS = BUILD / "bin/gradwire", BUILD / "bin/mpi_ranks"
MPIS = ("openmpi", "mpich")  # scripts/setup.sh installs both.
# Without hosts, mpirun needs no network.
ENVIRONMENT = dict(os.environ, OMP_NUM_THREADS="1", GRADWIRE_MPI_PLUGIN=str(BUILD / "lib"),
                   PYTHONPATH=str(BUILD / "python"))


def run(*command, **variables):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          timeout=120, env=dict(ENVIRONMENT, **variables),
                          stdin=subprocess.DEVNULL)


def over(mpi, ranks, *program, command="run", **variables):
    """Runs a program as ranks over an MPI."""
    return run(GRADWIRE, command, "--engine", "mpi", "--mpirun", f"mpirun.{mpi}", "-n", ranks,
               *program, **variables)


def each_mpi(test):
    """Runs a test with every MPI."""
    @functools.wraps(test)
    def run_all(self):
        for mpi in MPIS:
            with self.subTest(mpi):
                test(self, mpi)
    return run_all


class Case(unittest.TestCase):
    def assert_ok(self, done):
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout


class Communicator(Case):
    @each_mpi
    def test_all_operations(self, mpi):
        for ranks in (2, 3):
            output = self.assert_ok(over(mpi, ranks, "--", RANKS, "--gtest_brief=1"))
            self.assertEqual(output.count("PASSED"), ranks, output)

    @each_mpi
    def test_a_timeout_ends_the_job(self, mpi):
        for mode in ("late", "late-blocking", "late-left"):
            done = over(mpi, 2, "--", RANKS, mode)
            self.assertNotEqual(done.returncode, 0)
            self.assertRegex(done.stdout + done.stderr,
                             "rank 0: all_reduce of 1000 float32.*took longer than its timeout")


    @each_mpi
    def test_an_error_ends_the_job(self, mpi):
        for mode, error in (("more", ".*truncated"), ("fewer", "the sender sent fewer elements")):
            done = over(mpi, 2, "--", RANKS, mode)
            self.assertNotEqual(done.returncode, 0)
            self.assertRegex(done.stdout + done.stderr,
                             f"rank 1: .*: message of 10 float32 from rank 0: {error}.* ends the")


class Launcher(Case):
    @each_mpi
    def test_the_rank_that_fails_is_named(self, mpi):
        done = over(mpi, 3, "--", "sh", "-c", "[ $RANK != 1 ] || exit 7")
        self.assertEqual(done.returncode, 7)
        self.assertRegex(done.stdout + done.stderr, r"rank 1 on \S+ failed: exit status 7")

    @each_mpi
    def test_a_rank_that_is_killed_ends_the_others(self, mpi):
        done = over(mpi, 3, "--", RANKS, "die")
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stdout + done.stderr, r"rank 2 on \S+ failed: exit status 137")

    @each_mpi
    def test_ranks_have_the_variables_of_every_launcher(self, mpi):
        done = over(mpi, 2, "--no-prefix", "--env", "MINE=a b", "--", "sh", "-c",
                    "echo =$RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE: "
                    "$GRADWIRE_ENGINE $MINE $MASTER_ADDR ${GROUP_RANK-none}")
        self.assertEqual(sorted(re.findall("=(.*)", self.assert_ok(done))),
                         [f"{rank} of 2, {rank} of 2: mpi a b 127.0.0.1 none"
                          for rank in range(2)])

    def test_what_mpi_lacks_is_refused(self):
        for option, reason in (("--servers=1", "parameter servers"), ("--port=2000", "ports"),
                               ("--encrypt", "neither encrypts nor authenticates")):
            done = over("openmpi", 2, option, "--", "true")
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertRegex(done.stderr, f"{option[:6]}.*{reason}")
        done = over("mpich", 2, "--interface", "eth0,eth1", "--", "true")
        self.assertIn("MPICH uses one interface", done.stderr)

    @each_mpi
    def test_ranks_take_the_interface_that_mpi_got(self, mpi):
        one = ("--", RANKS, "--gtest_brief=1", "--gtest_filter=*Subgroups")
        self.assert_ok(over(mpi, 2, "--interface", "lo", *one))
        done = over(mpi, 2, "--env", "GRADWIRE_PORT=5123", *one)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("engine mpi has no port of the job's", done.stdout + done.stderr)

    def test_an_mpirun_that_is_missing(self):
        done = run(GRADWIRE, "run", "--engine", "mpi", "--mpirun", "no-mpirun", "--", "true")
        self.assertRegex(done.stderr, "no-mpirun.*install openmpi-bin or mpich")

    def test_the_configuration_of_a_training_names_it(self):
        with tempfile.TemporaryDirectory() as folder:
            config = pathlib.Path(folder) / "train.json"
            config.write_text('{"engine": "mpi", "epochs": 1, "batch_size": 16, '
                              '"data": {"name": "click_through", "samples": 100}}')
            command = (GRADWIRE, "train", config, "-n", "2", "--mpirun", "no-mpirun", "--output",
                       folder)
            self.assertRegex(run(*command).stderr, "no-mpirun.*install openmpi-bin or mpich")
            self.assert_ok(run(*command, "--engine", "own"))
            self.assertIn("engine: MPI\n", run(*command, "--dry-run").stdout)
            self.assertNotIn("MPI", run(*command, "--dry-run", "--engine", "own").stdout)
            for servers in ("servers.count=1", "servers.place=workers"):
                self.assertIn("servers need gradwire's own engine",
                              run(*command, "--dry-run", "--set", servers).stderr)
            done = run(*command, "--set", "engine=gloo")
            self.assertRegex(done.stderr, 'engine "gloo": .* use own or mpi here')


class Libraries(Case):
    def test_a_missing_one_is_said_on_every_rank(self):
        with tempfile.TemporaryDirectory() as empty:
            done = over("openmpi", 2, "--", RANKS, GRADWIRE_MPI_PLUGIN=empty)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("no MPI can be used. Install libopenmpi-dev", done.stdout + done.stderr)

    def test_the_other_mpis_launcher(self):
        for mpi, other in zip(MPIS, reversed(MPIS)):
            done = over(mpi, 2, "--", RANKS, GRADWIRE_MPI=other)
            self.assertNotEqual(done.returncode, 0)
            self.assertRegex(done.stdout + done.stderr,
                             r"rank \d of 2, but 0 of 1 to .*MPI.*: start the ranks with")

    @each_mpi
    def test_one_of_another_version(self, mpi):
        with tempfile.TemporaryDirectory() as folder:
            for file in ("plugin.c", "plugin.h"):
                shutil.copy(ROOT / "src/gradwire/mpi" / file, folder)
            library = pathlib.Path(folder, "plugin.so")
            header = pathlib.Path(folder, "plugin.h")
            header.write_text(re.sub(r"(_PLUGIN_VERSION) \d+", r"\1 0", header.read_text()))
            self.assert_ok(run(f"mpicc.{mpi}", "-shared", "-fPIC", "-o", library,
                               pathlib.Path(folder, "plugin.c")))
            done = over(mpi, 2, "--", RANKS, GRADWIRE_MPI_PLUGIN=str(library))
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("compile its plugin.c again", done.stdout + done.stderr)


class Bench(Case):
    @each_mpi
    def test_rows_have_the_engine(self, mpi):
        output = self.assert_ok(over(
            mpi, 2, "--sizes", "4,64K", "--iterations", 3, "--json", "-", "all_reduce",
            command="bench"))
        for row in json.loads(output[output.index("{"):])["rows"]:
            self.assertEqual((row["engine"], row["algorithm"], row["wrong"]), ("mpi", "mpi", 0))


def write_images(folder):
    """A data set of noise in the format of Fashion-MNIST."""
    for part, count in (("train", 1200), ("t10k", 100)):
        pathlib.Path(folder, f"{part}-images-idx3-ubyte").write_bytes(
            struct.pack(">iiii", 0x803, count, 28, 28) + random.Random(1).randbytes(count * 784))
        pathlib.Path(folder, f"{part}-labels-idx1-ubyte").write_bytes(
            struct.pack(">ii", 0x801, count) + bytes(i % 10 for i in range(count)))


# Name, ranks, and keys of a configuration. All take 50 steps of 24 samples.
STRATEGIES = (
    ("data parallel", 2, {}),
    ("bf16 gradients", 2, {"parallel": {"codec": "bf16"}}),
    ("int8 gradients", 3, {"parallel": {"codec": "int8"}}),
    ("ZeRO 1", 2, {"zero": {"stage": 1}}),
    ("ZeRO 2", 3, {"zero": {"stage": 2}}),
    ("ZeRO 3", 2, {"zero": {"stage": 3}}),
    ("local steps", 2, {"local_steps": {"steps": 5}}),
    ("pipeline", 4, {"mesh": {"pipeline": 4}, "pipeline": {"micro_batches": 4}}),
    ("pipeline and replicas", 4, {"mesh": {"pipeline": 2}, "pipeline": {"micro_batches": 4}}),
    ("parallel layers", 2, {"mesh": {"tensor": 2}}),
)


class Training(Case):
    """Every strategy has the same losses over MPI as on gradwire's own engine."""

    def losses(self, folder, ranks, config, *engine):
        pathlib.Path(folder, "config.json").write_text(json.dumps(config))
        self.assert_ok(run(GRADWIRE, "train", f"{folder}/config.json", "-n", ranks, "--output",
                           f"{folder}/out", "--data", folder, *engine))
        record = json.loads(pathlib.Path(folder, "out/run.json").read_text())
        return record["steps"]["loss"]

    @each_mpi
    def test_a_stopped_job_saves_its_checkpoint(self, mpi):
        with tempfile.TemporaryDirectory() as folder:
            write_images(folder)
            pathlib.Path(folder, "config.json").write_text(json.dumps(
                {"model": {"name": "mlp", "hidden": 16}, "batch_size": 24, "epochs": 100_000,
                 "checkpoint_every": 10**9}))
            with subprocess.Popen(
                    # Open MPI kills ranks 6 s after their SIGTERM.
                    [GRADWIRE, "run", "--engine", "mpi", "--mpirun", f"mpirun.{mpi}", "-n", "2",
                     "--grace", "13", "--no-prefix", "--", BUILD / "bin/gradwire-torch", "train",
                     f"{folder}/config.json", "--output", f"{folder}/out", "--data", folder],
                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                    env=ENVIRONMENT) as job:
                while "step" not in job.stdout.readline():  # It trains.
                    self.assertIsNone(job.poll())
                job.terminate()
                output, _ = job.communicate(timeout=60)
            self.assertRegex(output, "stopped by SIGTERM after step .*: the checkpoint is in")

    def test_every_strategy(self):
        with tempfile.TemporaryDirectory() as folder:
            write_images(folder)
            for number, (name, ranks, keys) in enumerate(STRATEGIES):
                config = {"model": {"name": "mlp", "hidden": 16, "layers": 4}, "batch_size": 24,
                          "epochs": 1, "optimizer": {"name": "sgd", "learning_rate": 0.05}, **keys}
                mpi = MPIS[number % 2]
                with self.subTest(name, mpi=mpi):
                    own = self.losses(folder, ranks, config)
                    over_mpi = self.losses(folder, ranks, config, "--engine", "mpi", "--mpirun",
                                           f"mpirun.{mpi}")
                    self.assertEqual(len(own), 50)
                    for one, other in zip(own, over_mpi, strict=True):
                        self.assertAlmostEqual(one, other, delta=1e-5)


# The suites of the backend in Python, which start as three ranks, and their cases: all that need no
# trait that MPI lacks (failures of their own, encryption, algorithms by name).
SUITES = {"openmpi": (("operations",), ("training",), ("hooks",), ("buckets",)),
          "mpich": (("averages",), ("groups", "Groups.test_some_ranks_only",
                                    "Groups.test_one_rank_alone", "Groups.test_split"))}
# Each rank prints its error, and waits for those of the others before it ends the job.
OTHER_ENGINES = """
import os, pathlib, sys, time, gradwire, torch.distributed as dist
rank, folder = os.environ["RANK"], pathlib.Path(os.environ["FOLDER"])
engine = "own" if rank == os.environ["OWN"] else "mpi"
try:
    dist.init_process_group("gradwire", pg_options=gradwire.Options(engine=engine))
except Exception as error:
    print(f"error of {rank}: {error}", flush=True)
pathlib.Path(folder, rank).touch()
while len(list(folder.iterdir())) < int(os.environ["WORLD_SIZE"]):
    time.sleep(0.01)
sys.exit(1)
"""


class Python(Case):
    @each_mpi
    def test_suites(self, mpi):
        for suite, *cases in SUITES[mpi]:
            with tempfile.TemporaryDirectory() as folder:
                done = over(mpi, 3, "--no-prefix", "--", sys.executable,
                            ROOT / f"tests/python/test_{suite}.py", *cases,
                            GRADWIRE_TEST_FOLDER=folder)
            self.assert_ok(done)  # A rank without a test that passed fails.

    def test_ranks_with_different_engines(self):
        for own, ranks in ((0, 2), (1, 2), (2, 3)):
            with tempfile.TemporaryDirectory() as folder:
                done = over("openmpi", ranks, "--", sys.executable, "-c", OTHER_ENGINES,
                            OWN=str(own), FOLDER=folder)
            self.assertNotEqual(done.returncode, 0)
            for rank in range(ranks):
                self.assertRegex(done.stdout, f"error of {rank}: .*rank {own} uses the engine own, "
                                              "others use mpi")


if __name__ == "__main__":
    unittest.main(verbosity=2)
