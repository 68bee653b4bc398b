"""Parameter servers: gradwire.Served and ServedEmbedding, on ranks of their own and beside workers.
Most jobs are forked ranks with the variables that `gradwire run --servers` sets; one is a real
one."""

import os
import pathlib
import re
import secrets
import socket
import subprocess
import sys
import tempfile
import textwrap
import unittest

import fork_server

GRADWIRE = os.environ.get("GRADWIRE_PROGRAM", "gradwire")

MODEL = """
import atexit, copy, functools, os, sys
import torch, torch.distributed as dist, gradwire
from gradwire import backend

torch.manual_seed(3)
net = torch.nn.Sequential(torch.nn.Linear(13, 31), torch.nn.Tanh(), torch.nn.Linear(31, 3))

def samples(step, rank):
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(8, 13, generator=generator), torch.randn(8, 3, generator=generator)

def loss_of(model, step, rank):
    inputs, targets = samples(step, rank)
    return (model(inputs) - targets).square().mean()

def averaged_step(net, optimizer, step):
    loss_of(net, step, dist.get_rank()).backward()
    for parameter in net.parameters():
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()
    optimizer.step()
    optimizer.zero_grad()

def assert_same(net, other):
    for (name, one), two in zip(net.named_parameters(), other.parameters()):
        assert one.equal(two), f"{name} differs by {(one - two).abs().max()}"

def compare(optimizer, factory=None, steps=20, **options):
    this, other = copy.deepcopy(net), copy.deepcopy(net)
    if role == "worker" and dist.get_rank() > 0:
        torch.nn.init.ones_(this[0].weight)  # Worker 0's values count.
    with gradwire.Served(this, optimizer=optimizer, bucket_cap_mb=0.0005, **options) as model:
        optimizer = (factory or optimizer)(list(other.named_parameters()))
        for step in range(steps):
            loss_of(model, step, dist.get_rank()).backward()
            model.step()
            averaged_step(other, optimizer, step)
        model.pull()
        assert_same(this, other)
        assert len(model.units) > 1, model.units
        report = model.report()
        assert report["staleness"]["max"] == 0, report
        assert report["by_worker"][0]["gradients"] % (steps * len(model.units)) == 0, report

def error_of(call):
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""
"""

# The variables that `gradwire run --servers` sets; with no servers, those of any job.
ROLES = """
rank = int(os.environ["RANK"])
if {servers}:
    serves = rank >= {workers}
    os.environ.update(
        GRADWIRE_ROLE="server" if serves else "worker", GRADWIRE_WORKERS="{workers}",
        GRADWIRE_SERVERS="{servers}", GRADWIRE_SERVERS_MASTER="127.0.0.1:{port}",
        RANK=str(rank - {workers} if serves else rank),
        WORLD_SIZE="{servers}" if serves else "{workers}")
os.environ.update(LOCAL_RANK=os.environ["RANK"], MASTER_ADDR="127.0.0.1",
                  MASTER_PORT="{other_port}", GRADWIRE_ALGORITHM="all_reduce=exchange",
                  GRADWIRE_SECRET="{secret}")
role = os.environ.get("GRADWIRE_ROLE", "worker")

def end():  # After Served has left. What else the interpreter does at its end takes a second.
    backend._leave()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(hasattr(sys, "last_value"))

atexit.register(end)
dist.init_process_group("{backend}", init_method="file://" + os.environ["STORE"] + role,
                        rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
"""


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


# With what torch.optim's first optimizer imports, in seconds.
jobs = fork_server.ForkServer("torch._dynamo")
unittest.addModuleCleanup(jobs.close)


class Jobs(unittest.TestCase):
    def run_ranks(self, workers, servers, body, backend="gradwire"):
        """Runs the program on workers, and on `servers` ranks of their own. Returns status and
        output of each rank."""
        roles = ROLES.format(workers=workers, servers=servers, port=free_port(),
                             other_port=free_port(), secret=secrets.token_hex(16),
                             backend=backend)
        return jobs.run(workers + servers, MODEL + roles + textwrap.dedent(body))

    def check(self, workers, servers, body, backend="gradwire"):
        """Returns the outputs of the ranks, all of which must end with status 0."""
        results = self.run_ranks(workers, servers, body, backend)
        outputs = [output for _, output in results]
        text = "\n".join(f"--- rank {rank}\n{output}" for rank, output in enumerate(outputs))
        self.assertEqual([status for status, _ in results], (workers + servers) * [0], text)
        return outputs


class Synchronous(Jobs):
    """Compared with gradients that an all-reduce averages in the order of ranks, bit for bit."""

    def test_ranks_of_their_own(self):
        for servers, factory in ((1, "SGD, lr=0.1, momentum=0.9"), (2, "Adam, lr=0.01")):
            with self.subTest(servers=servers, factory=factory):
                outputs = self.check(2, servers, f"""
                    compare(functools.partial(torch.optim.{factory}))
                    print("trained")
                """)
                self.assertEqual([text.count("trained") for text in outputs],
                                 2 * [1] + servers * [0], outputs)

    def test_over_gloo(self):
        for servers in (0, 1):
            with self.subTest(servers=servers):
                self.check(2, servers, """
                    compare(functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9))
                """, backend="gloo")

    def test_beside_workers(self):
        self.check(3, 0, """
            compare(functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9))
            compare(functools.partial(torch.optim.Adam, lr=0.01), servers=2)
            # Groups of parameters, and states that are there from the start.
            compare(lambda named: torch.optim.Adagrad([
                {"params": [p for _, p in named if p.dim() > 1], "lr": 0.05},
                {"params": [p for name, p in named if name.endswith("bias")], "lr": 0.2}],
                initial_accumulator_value=0.1))
        """)

    def test_optimizers_without_python(self):
        self.check(2, 0, """
            for kind, options in (
                (torch.optim.SGD, dict(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01)),
                (torch.optim.SGD, dict(lr=0.1, momentum=0.9, dampening=0.1)),
                (torch.optim.Adam, dict(lr=0.01, weight_decay=0.1)),
                (torch.optim.Adagrad, dict(lr=0.05, lr_decay=0.1)),
            ):
                compare(kind.__name__.lower(), functools.partial(kind, **options),
                        optimizer_options=options)
        """)

    def test_accumulates_and_counts_missing_gradients_as_zero(self):
        self.check(2, 0, """
            net.add_module("unused", torch.nn.Linear(2, 2))
            net.unused.forward = lambda x: x
            other = copy.deepcopy(net)
            with gradwire.Served(net, optimizer="sgd", optimizer_options={"lr": 0.1}) as model:
                for step in range(4):
                    with model.no_sync():
                        loss_of(model, 2 * step, dist.get_rank()).backward()
                    loss_of(model, 2 * step + 1, dist.get_rank()).backward()
                    model.step()
                model.state_dict()  # Waits for the parameters.
                optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
                for step in range(4):
                    loss_of(other, 2 * step, dist.get_rank()).backward()
                    averaged_step(other, optimizer, 2 * step + 1)
                assert_same(net, other)
        """)

    def test_the_rate_and_the_buffers(self):
        self.check(2, 0, """
            net.register_buffer("seen", torch.zeros(1))
            for optimizer in (functools.partial(torch.optim.SGD, lr=0.4), "sgd"):
                this, other = copy.deepcopy(net), copy.deepcopy(net)
                options = {"lr": 0.4} if optimizer == "sgd" else None
                with gradwire.Served(this, optimizer=optimizer, optimizer_options=options) as model:
                    model.set_rate(0.25)
                    for step in range(3):
                        loss_of(model, step, dist.get_rank()).backward()
                        model.step()
                        this.seen += 1 + dist.get_rank()
                    model(samples(0, 0)[0])
                    assert this.seen.item() == 3, this.seen  # Worker 0's.
                optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
                for step in range(3):
                    averaged_step(other, optimizer, step)
                assert_same(this, other)
        """)


class Asynchronous(Jobs):
    def test_staleness_and_samples_that_are_dealt(self):
        outputs = self.check(3, 1, """
            with gradwire.Served(net, optimizer="sgd", optimizer_options={"lr": 0.01}, mode="async",
                                 samples=1200, epochs=2) as model:
                taken = []
                while (batch := model.take(2)).count:
                    taken += [(batch.epoch, batch.begin + i) for i in range(batch.count)]
                    loss_of(model, batch.begin, batch.epoch).backward()
                    model.step()
                print("taken", taken)
                print("sum", sum(p.double().sum().item() for p in net.parameters()))
                print("mean", model.report()["staleness"]["mean"])
                print("gradients", [w["gradients"] for w in model.report()["by_worker"]])
        """)
        taken = [pair for text in outputs[:3] for pair in re.findall(r"\((\d), (\d+)\)", text)]
        self.assertEqual(len(taken), 2400)
        self.assertEqual(len(set(taken)), 2400)
        sums = {re.search("sum (.*)", text)[1] for text in outputs[:3]}
        self.assertEqual(len(sums), 1, sums)
        mean = float(re.search("mean (.*)", outputs[0])[1])
        self.assertAlmostEqual(mean, 2, delta=0.1)  # W - 1.

    def test_bounded_staleness(self):
        self.check(2, 1, """
            with gradwire.Served(net, optimizer="adagrad", mode="ssp:1", rate="inverse") as model:
                for step in range(30):
                    loss_of(model, step, dist.get_rank()).backward()
                    model.step()
                model.synchronize()
                staleness = model.report()["staleness"]
                # Another one is at most two steps ahead of a worker, and two behind.
                assert staleness["max"] <= 4, staleness
                assert staleness["gradients"] == 60 * len(model.units), staleness
        """)

    def test_late_gradients_are_counted(self):
        self.check(2, 1, """
            with gradwire.Served(net, optimizer="sgd", use=0.5) as model:
                for step in range(20):
                    loss_of(model, step, dist.get_rank()).backward()
                    model.step()
                model.synchronize()
                report = model.report()
                assert report["updates"] + report["late"] == 40 * len(model.units), report
        """)

    def test_codecs(self):
        self.check(2, 1, """
            with gradwire.Served(net, optimizer="sgd", mode="async", codec="int8",
                                 codec_min_elements=1, pull_codec="bf16") as model:
                before, sent = loss_of(model, 0, 0).item(), model.bytes_sent
                for step in range(30):
                    loss_of(model, step % 3, dist.get_rank()).backward()
                    model.step()
                model.synchronize()
                elements = sum(p.numel() for p in net.parameters())
                assert 30 * elements < model.bytes_sent - sent < 30 * 2 * elements
                assert loss_of(model, 0, 0).item() < before
        """)


class Embeddings(Jobs):
    TRAIN = """
        def ids_of(batch):
            generator = torch.Generator().manual_seed(100 * batch + dist.get_rank())
            return torch.randint(0, 40, (6, 2), generator=generator)

        def loss_of_rows(rows):
            return (rows * torch.arange(rows.numel()).view_as(rows).sin() + 0.3 * rows ** 2).sum()

        def trained(table, ahead=0, batches=12):
            for batch in range(min(ahead, batches)):
                table.prefetch(ids_of(batch))
            for batch in range(batches):
                if batch + ahead < batches and ahead:
                    table.prefetch(ids_of(batch + ahead))
                loss_of_rows(table(ids_of(batch))).backward()
                table.step()
            return table.gather()
    """

    def check_rows(self, workers, servers, body):
        return self.check(workers, servers,
                          textwrap.dedent(self.TRAIN) + textwrap.dedent(body))

    def test_one_worker_has_the_bits_of_torch(self):
        for servers, optimizer in ((0, "SGD"), (2, "Adagrad")):
            with self.subTest(optimizer=optimizer):
                outputs = self.check_rows(1, servers, f"""
                    with gradwire.ServedEmbedding(40, 16, seed=5, optimizer="{optimizer.lower()}",
                                                  learning_rate=0.1) as table:
                        other = torch.nn.Embedding.from_pretrained(table.gather(), freeze=False,
                                                                   sparse=True)
                        optimizer = torch.optim.{optimizer}(other.parameters(), lr=0.1)
                        rows = trained(table)
                        with torch.no_grad():
                            assert table(ids_of(3)).equal(rows[ids_of(3)])
                        made = table.report()["made"]
                        assert made == len(set(torch.cat([ids_of(i) for i in range(12)])
                                               .flatten().tolist())), made
                    for batch in range(12):
                        loss_of_rows(other(ids_of(batch))).backward()
                        other.weight.grad = other.weight.grad.coalesce()
                        optimizer.step()
                        optimizer.zero_grad()
                    assert rows.equal(other.weight), (rows - other.weight).abs().max()
                    print("compared")
                """)
                self.assertEqual([text.count("compared") for text in outputs],
                                 [1] + servers * [0])

    def test_prefetched_batches_have_the_same_bits_in_every_run(self):
        self.check_rows(2, 0, """
            def run(servers, rate=1.0):
                with gradwire.ServedEmbedding(40, 4, staleness=2, optimizer="adagrad",
                                              servers=servers, learning_rate=0.1) as table:
                    assert table.free_permits == 3
                    table.set_rate(rate)
                    rows = trained(table, ahead=2)
                    report = table.report()
                    assert report["permits_max"] <= 3 and report["staleness_max"] <= 2, report
                    assert report["steps"] == 12, report
                    table.synchronize()
                    return rows, table.state_dict()
            rows, state = run(1)
            assert rows.equal(run(2)[0])
            assert not rows.equal(run(1, rate=0.5)[0])
            with gradwire.ServedEmbedding(40, 4, optimizer="adagrad", servers=2) as table:
                table.load_state_dict(state)
                assert table.gather().equal(rows)
        """)

    def test_what_is_refused(self):
        self.check_rows(1, 0, """
            def refused(expected, call):
                text = error_of(call)
                assert expected in text, f"{expected!r} is not in {text!r}"
            refused("ValueError", lambda: gradwire.ServedEmbedding(0, 4))
            refused("adam", lambda: gradwire.ServedEmbedding(4, 4, optimizer="adam"))
            with gradwire.ServedEmbedding(4, 4) as table:
                refused("int64 on the CPU", lambda: table(torch.zeros(2)))
                refused("ValueError", lambda: table(torch.tensor([4])))
                refused("step() without a batch", table.step)
                table(torch.tensor([3]))
                refused("call step() after", lambda: table(torch.tensor([3])))
                table.step()
        """)


class Errors(Jobs):
    def test_what_is_refused(self):
        self.check(1, 0, """
            sgd = functools.partial(torch.optim.SGD, lr=0.1)
            def refused(expected, module=net, **options):
                text = error_of(lambda: gradwire.Served(module, **({"optimizer": sgd} | options)))
                assert expected in text, f"{expected!r} is not in {text!r}"
            refused("ValueError", mode="eventually")
            refused("eventually", mode="eventually")
            refused("rate", rate="sometimes")
            refused("ValueError: Served: pull_every is 0", pull_every=0)
            refused("ValueError: Served: bucket_cap_mb is 0", bucket_cap_mb=0)
            refused("ValueError: Served: 2 servers beside 1 workers", servers=2)
            refused("zip", codec="zip")
            refused("parameter '0.weight' is on meta; servers support",
                    copy.deepcopy(net).to("meta"))
            refused("the module has no parameter that requires a gradient", torch.nn.Tanh())
            refused("TypeError: Served: optimizer is a SGD: pass a function", optimizer=sgd(
                net.parameters()))
            refused("TypeError: Served: optimizer is a int", optimizer=3)
            refused("'adamw' is none of sgd, adam, adagrad", optimizer="adamw")
            refused("'adam' has no option momentum", optimizer="adam",
                    optimizer_options={"momentum": 0.9})
            refused("lr is -1; it must be 0 or more", optimizer="sgd", optimizer_options={"lr": -1})
            refused("beta2 is 1; it must be 0 or more, and less than 1", optimizer="adam",
                    optimizer_options={"betas": (0.9, 1)})
            refused("nesterov needs a momentum", optimizer="sgd",
                    optimizer_options={"nesterov": True})
            refused("optimizer_options are for", optimizer_options={"lr": 1})
            refused("TypeError: optimizer made a list", optimizer=list)
            refused("ValueError: LBFGS may not treat each element apart",
                    optimizer=lambda named: torch.optim.LBFGS([p for _, p in named]))
            refused("unexpected keyword argument 'groups'", groups=2)
            with gradwire.Served(net, optimizer=sgd) as model:
                assert "step() without a backward" in error_of(model.step)
                assert "take() needs samples=" in error_of(lambda: model.take(1))
                assert "before you wrap it" in error_of(
                    lambda: net.load_state_dict(net.state_dict()))
                loss_of(model, 0, 0).backward()
                text = error_of(loss_of(model, 0, 0).backward)
                assert "a second gradient" in text, text
                model.step()
                net[0].weight.data = net[0].weight.data.clone()
                loss_of(model, 0, 0).backward()
                assert "'0.weight' was moved or converted" in error_of(model.step)
        """)

    def test_an_error_of_the_optimizer_reaches_the_workers(self):
        results = self.run_ranks(1, 1, """
            class Broken(torch.optim.SGD):
                def step(self):
                    raise KeyError("no such state")
            model = gradwire.Served(net, optimizer=lambda named: Broken(named, lr=0.1),
                                    optimizer_is_per_element=True)
            loss_of(model, 0, 0).backward()
            model.step()
            model(samples(0, 0)[0])
        """)
        for status, output in results:
            self.assertEqual(status, 1, output)
            self.assertIn("no such state", output)

    def test_a_failed_worker_ends_nobody_else(self):
        results = self.run_ranks(3, 1, """
            me = dist.get_rank()
            model = gradwire.Served(net, optimizer="sgd", mode="async")
            for step in range(50):
                if me == 1 and step == 5:
                    raise ValueError("bad sample")
                if me == 2 and step == 7:
                    os._exit(9)
                loss_of(model, step, me).backward()
                model.step()
            if me == 0:
                model.synchronize()
                by_worker = [each["gradients"] for each in model.report()["by_worker"]]
                assert by_worker[0] == 50 * len(model.units), by_worker
                print("gradients", by_worker)
            model.close()
        """)
        self.assertEqual([status for status, _ in results], [0, 1, 9, 0], results)
        self.assertIn("gradients", results[0][1])

    def test_leaves_the_module_as_it_was(self):
        self.check(2, 0, """
            import weakref
            with gradwire.Served(net, optimizer="sgd") as model:
                loss_of(model, 0, 0).backward()
                model.step()
            net.load_state_dict(net.state_dict())
            loss_of(net, 0, 0).backward()
            assert net[0].weight.grad.abs().sum() > 0
            net.zero_grad()
            for _ in range(2):
                model = gradwire.Served(copy.deepcopy(net), optimizer="sgd")
                loss_of(model, 0, 0).backward()
                model.step()
                gone = weakref.ref(model)
                del model  # Leaves, as close() does.
                assert gone() is None
        """)


class Launched(unittest.TestCase):
    def test_servers_end_their_programs_and_a_killed_worker_ends_nobody(self):
        program = MODEL + textwrap.dedent("""
            import signal
            dist.init_process_group("gradwire")
            try:
                model = gradwire.Served(net, mode="async",
                                        optimizer=functools.partial(torch.optim.SGD, lr=0.01))
                print(f"worker {dist.get_rank()} of {dist.get_world_size()}", flush=True)
                step = 0
                while not os.path.exists(sys.argv[1]):
                    if dist.get_rank() == 1 and step == 10:
                        os.kill(os.getpid(), signal.SIGKILL)
                    loss_of(model, step, dist.get_rank()).backward()
                    model.step()
                    step += 1
                model.synchronize()
                print("trained", flush=True)
            finally:
                dist.destroy_process_group()
        """)
        with tempfile.TemporaryDirectory() as folder:
            file, noticed = pathlib.Path(folder) / "program.py", pathlib.Path(folder) / "noticed"
            file.write_text(program)
            job = subprocess.Popen(
                [GRADWIRE, "run", "-n", "3", "--servers", "1", sys.executable, file, noticed],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                env=dict(os.environ, OMP_NUM_THREADS="1"))
            lines = []
            with job.stdout:
                for line in job.stdout:
                    lines.append(line)
                    if "go on without it" in line:
                        noticed.touch()
            status = job.wait()
        output = "".join(lines)
        self.assertEqual(status, 0, output)
        self.assertEqual(sorted(re.findall("worker . of .", output)),
                         ["worker 0 of 2", "worker 1 of 2"], output)
        self.assertEqual(output.count("trained"), 1, output)


if __name__ == "__main__":
    unittest.main(verbosity=2)
