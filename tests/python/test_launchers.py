"""Launchers: the examples under `gradwire run`, and a rank that dies under torchrun."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import textwrap
import unittest

GRADWIRE = os.environ.get("GRADWIRE_PROGRAM", "gradwire")  # Not -m gradwire: that imports PyTorch.
EXAMPLES = pathlib.Path(__file__).resolve().parent.parent.parent / "examples/python"


def run(*command, **variables):
    environment = dict(os.environ, OMP_NUM_THREADS="1", **variables)
    return subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          timeout=200, check=False, env=environment)


class Examples(unittest.TestCase):
    def output_of(self, *command):
        done = run(GRADWIRE, "run", "-n", 2, sys.executable, *command)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_ddp(self):
        output = self.output_of(EXAMPLES / "ddp_fashion.py", "--images", 2000, "--codec", "int8")
        reached = re.findall(r"epoch 2: accuracy ([\d.]+) %", output)
        self.assertEqual(len(reached), 1, output)
        self.assertGreater(float(reached[0]), 50)

    def test_fsdp2(self):
        output = self.output_of(EXAMPLES / "fsdp2_gpt.py", "--steps", 40, "--width", 32)
        losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", output)]
        self.assertLess(losses[-1], losses[0], output)

    def test_pipeline(self):
        output = self.output_of(EXAMPLES / "pipeline.py", "--steps", 40, "--width", 32)
        self.assertIn("rank 1   ...F0", output)
        losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", output)]
        self.assertEqual(len(losses), 2, output)
        self.assertLess(losses[-1], losses[0], output)

    def test_codec_hooks(self):
        rows = re.findall(r"(\S+) +loss ([\d.]+) +([\d.]+) MB", self.output_of(
            EXAMPLES / "codec_hooks.py"))
        sent = {codec: float(megabytes) for codec, _, megabytes in rows}
        self.assertLess(sent["bf16"], 0.6 * sent["none"])
        self.assertLess(sent["int8"], 0.35 * sent["none"])


class Bench(unittest.TestCase):
    def test_gloo_of_this_python(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "rows.json"
            done = run(sys.executable, "-m", "gradwire", "bench", "all_reduce", "--engine", "gloo",
                       "-n", 2, "--sizes", "4,64K", "--iterations", 3, "--json", file)
            self.assertEqual(done.returncode, 0, done.stderr)
            rows = json.loads(file.read_text())["rows"]
        self.assertRegex(done.stdout,
                         r"# 2 ranks.*\n(.*\n){2} +4 +float32 +sum.*\n +65536 +float32")
        self.assertEqual([(row["engine"], row["bytes"], row["wrong"]) for row in rows],
                         [("gloo", 4, 0), ("gloo", 65536, 0)])
        self.assertGreater(min(row["median_us"] for row in rows), 0)


class Failures(unittest.TestCase):
    def last_line(self, body):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "program.py"
            file.write_text(textwrap.dedent(body))
            done = run(GRADWIRE, "run", "-n", 3, sys.executable, file)
        self.assertNotEqual(done.returncode, 0)
        return done.stderr.splitlines()[-1], done.stderr

    def test_the_rank_that_raised_is_named_with_its_exception(self):
        for end in ("", "dist.barrier()"):  # In between, and with an operation in flight.
            last, output = self.last_line(f"""
                import torch, torch.distributed as dist, gradwire
                dist.init_process_group("gradwire")
                for i in range(100):
                    if i == 5 and dist.get_rank() == 2:
                        work = dist.all_reduce(torch.ones(10), async_op=True) if {end!r} else None
                        raise ValueError("bad sample")
                    dist.all_reduce(torch.ones(1000 if {not end} else 10))
            """)
            self.assertIn("rank 2 on host", last)
            self.assertRegex(
                last, r"\((rank 2 left the job )?after an exception: ValueError: bad sample\)")
            self.assertRegex(output, "rank 2 .*left the job after an exception: ValueError: bad")

    def test_a_rank_that_ends_early_is_named(self):
        last, _ = self.last_line("""
            import sys, torch, torch.distributed as dist, gradwire
            dist.init_process_group("gradwire")
            if dist.get_rank() == 2:
                sys.exit(0)
            dist.all_reduce(torch.ones(1000))
        """)
        self.assertRegex(last, r"rank 2 on host .* ended before the others had finished \(rank 2")


class Torchrun(unittest.TestCase):
    def test_workers_that_die_are_started_again(self):
        program = textwrap.dedent("""
            import os, sys, gradwire, torch, torch.distributed as dist
            dist.init_process_group("gradwire")
            again = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
            total = torch.tensor([dist.get_rank() + 1.0])
            dist.all_reduce(total)
            if again == 0 and dist.get_rank() == 1:
                os._exit(7)
            if again == 0:
                try:
                    dist.barrier()
                    sys.exit("the barrier went on without rank 1")
                except RuntimeError as error:
                    assert "rank 1" in str(error), error
                    sys.exit(8)
            print(f"attempt {again}: {total.item()}", flush=True)
            dist.destroy_process_group()
        """)
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "program.py"
            file.write_text(program)
            done = run(sys.executable, "-m", "torch.distributed.run", "--standalone",
                       "--nproc-per-node", 2, "--max-restarts", 1, file)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(done.stdout.count("attempt 1: 3.0"), 2, done.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
