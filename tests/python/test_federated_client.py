"""gradwire.FederatedClient: clients in processes of their own, and `gradwire federate serve`."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

import torch
from safetensors.torch import load_file, save_file
from torch.utils.data import TensorDataset

import fork_server
import gradwire
from gradwire import federated

PROGRAM = os.environ["GRADWIRE_PROGRAM"]
HERE = pathlib.Path(__file__).resolve().parent
EXAMPLE = HERE.parents[1] / "examples/python/federated_client.py"
CLIENTS, FEATURES, CLASSES, SEED = 3, 12, 3, 7


def points(count, seed):
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(CLASSES, FEATURES, generator=torch.Generator().manual_seed(1))
    targets = torch.arange(count) % CLASSES
    return TensorDataset(centres[targets] + torch.randn(count, FEATURES, generator=generator),
                         targets)


def data_of(client):
    return points(12 * (client + 1), seed=client)


def model():
    """Its parameters are not in the order of their names, and it has floating buffers."""
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(FEATURES, 8), torch.nn.BatchNorm1d(8),
                               torch.nn.Dropout(0.1), torch.nn.Linear(8, CLASSES))


class Server:
    """A `gradwire federate serve` in a folder of its own, and the identities of its clients."""

    def __init__(self, rounds=3, write=None, **more):
        """`write` writes the first values to a file."""
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gradwire-federated-"))
        for client in range(CLIENTS):
            self.enrol(client, "key")
        (write or (lambda file: save_file(model().state_dict(), file)))(
            self.folder / "net.safetensors")
        config = {"model": {"file": str(self.folder / "net.safetensors")}, "seed": SEED,
                  "rounds": rounds,
                  "round": {"ask": CLIENTS, "use": CLIENTS, "least": CLIENTS, "gather_s": 60},
                  "local": {"epochs": 2, "batch_size": 6, "learning_rate": 0.05, "momentum": 0.5},
                  "update": {"bits": 8, "rotate": True}, **more}
        (self.folder / "federated.json").write_text(json.dumps(config))
        self.process = subprocess.Popen(
            [PROGRAM, "federate", "serve", "federated.json", "--key", "key", "--listen",
             "127.0.0.1:0", "--output", "run", "--json", "served.json"], cwd=self.folder,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if not line.startswith("listening at "):
            raise AssertionError(line + self.process.communicate()[1])
        self.address = line.removeprefix("listening at ").split(": rounds")[0]

    def enrol(self, client, key):
        """Returns the identity, also of a server with another key."""
        file = self.folder / f"{key}-{client}.json"
        identity = subprocess.run([PROGRAM, "federate", "enrol", str(self.folder / key),
                                   "--client", f"client-{client}"], check=True, capture_output=True)
        file.touch(0o600)
        file.write_bytes(identity.stdout)
        return file

    def client(self, client, module=None, **options):
        return gradwire.FederatedClient(
            self.folder / f"key-{client}.json", module or model(), data_of(client),
            server=self.address, give_up_s=60, **options)

    def end(self):
        """Waits until the rounds are complete. Returns the result in JSON."""
        out, err = self.process.communicate(timeout=120)
        if self.process.returncode != 0:
            raise AssertionError(out + err)
        return json.loads((self.folder / "served.json").read_text())

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.kill()
        self.process.communicate()
        shutil.rmtree(self.folder)


def take_part(folder, server, client, *words):
    """A client's process. Prints what run() returns."""
    torch.set_num_threads(1)
    taking_part = gradwire.FederatedClient(
        f"{folder}/key-{client}.json", model(), data_of(client), server=server,
        held_out=points(30, seed=9 + client),
        give_up_s=60, secure="secure" in words, secure_active="active" in words)
    print(taking_part.run(lambda done: print(done, flush=True)))


class Processes(unittest.TestCase):
    def serve(self, *words, **more):
        """Returns the trained tensors, and the server's result, after three rounds."""
        with Server(**more) as server:
            program = (f"import os, sys\nsys.path.insert(0, {str(HERE)!r})\n"
                       "import test_federated_client\n"
                       f"test_federated_client.take_part({str(server.folder)!r}, "
                       f"{server.address!r}, int(os.environ['RANK']), *{words!r})")
            for status, output in clients.run(CLIENTS, program):
                self.assertEqual(status, 0, output)
                self.assertEqual(output.splitlines()[-1], "3", output)
            return server.end(), load_file(server.folder / "run/model.safetensors")

    def simulated(self):
        net = model()
        torch.set_num_threads(1)
        federated.simulate(
            net, [data_of(client) for client in range(CLIENTS)], rounds=3, use=CLIENTS,
            least=CLIENTS, epochs=2, batch_size=6, bits=8, rotate=True, seed=SEED,
            optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.5))
        return net.state_dict()

    def assert_same(self, served, simulated):
        floating = {name for name, one in simulated.items() if one.is_floating_point()}
        self.assertEqual(served.keys(), floating)
        for name in floating:
            self.assertTrue(served[name].equal(simulated[name]), name)

    def test_plain_rounds_have_the_bits_of_a_simulation(self):
        served, tensors = self.serve()
        self.assert_same(tensors, self.simulated())
        self.assertEqual([one["used"] for one in served["rounds"]], [CLIENTS] * 3)
        self.assertGreater(served["rounds"][-1]["accuracy"], served["rounds"][0]["accuracy"])

    def test_secure_rounds_have_the_bits_of_a_simulation(self):
        _, tensors = self.serve("secure", "active",
                                secure={"active": True, "dropping": 0, "colluding": 0})
        self.assert_same(tensors, self.simulated())


class Example(unittest.TestCase):
    def test_clients_of_the_example_learn(self):
        def write(file):
            subprocess.run([sys.executable, EXAMPLE, "--write", file], check=True)

        with Server(rounds=3, write=write) as server:
            clients = [subprocess.Popen(
                [sys.executable, EXAMPLE, server.folder / f"key-{client}.json", "--server",
                 server.address, "--seed", str(client)], stdout=subprocess.PIPE, text=True)
                for client in range(CLIENTS)]
            for client in clients:
                out, _ = client.communicate(timeout=120)
                self.assertEqual(client.returncode, 0)
                self.assertIn("counted in 3 rounds", out)
            rounds = server.end()["rounds"]
            self.assertGreater(rounds[-1]["accuracy"], rounds[0]["accuracy"])


class Errors(unittest.TestCase):
    def test_a_module_of_another_architecture(self):
        wide = torch.nn.Sequential(torch.nn.Linear(FEATURES, 9), torch.nn.BatchNorm1d(9),
                                   torch.nn.Dropout(0.1), torch.nn.Linear(9, CLASSES))
        more = torch.nn.Sequential(*model(), torch.nn.Linear(CLASSES, CLASSES))
        with Server() as server:
            with self.assertRaisesRegex(ValueError, r"0.bias has shape \(8\) at the server, and "
                                        r"\(9\) in the module"):
                server.client(0, wide).run()
            with self.assertRaisesRegex(ValueError, "4.bias is not in the server's model"):
                server.client(0, more).next()
            with self.assertRaisesRegex(ValueError, "one architecture"):
                server.client(0, torch.nn.Linear(FEATURES, CLASSES)).next()

    def test_a_stranger(self):
        with Server() as server:
            identity = server.enrol(0, "another-key")
            stranger = gradwire.FederatedClient(identity, model(), data_of(0),
                                                server=server.address)
            with self.assertRaisesRegex(RuntimeError, "does not know the identity client-0.*enrol"):
                stranger.run()

    def test_what_the_constructor_refuses(self):
        with Server() as server:
            with self.assertRaisesRegex(ValueError, "at least one sample"):
                gradwire.FederatedClient(server.folder / "key-0.json", model(), points(0, 1))
            with self.assertRaisesRegex(ValueError, r"0.bias is torch.float64.*\.float\(\)"):
                server.client(0, model().double())
            with self.assertRaisesRegex(ValueError, "does not say where its server is"):
                gradwire.FederatedClient(server.folder / "key-0.json", model(), data_of(0))
            with self.assertRaisesRegex((ValueError, RuntimeError), "missing.json"):
                gradwire.FederatedClient(server.folder / "missing.json", model(), data_of(0))

    def test_an_optimizer_that_is_not_torchs(self):
        with Server(**ALONE, local={"optimizer": "yogi", "learning_rate": 0.01}) as server:
            with self.assertRaisesRegex(ValueError, "yogi: give FederatedClient an `optimizer`"):
                server.client(0).run()


ALONE = {"round": {"ask": 1, "use": 1, "least": 1, "window_s": 60}}


class Alone(unittest.TestCase):
    """A server that needs one client."""

    def test_an_update_that_is_not_finite_leaves_the_round(self):
        with Server(rounds=1, **ALONE) as server:
            rate = 1e30
            client = server.client(0, optimizer=lambda parameters: torch.optim.SGD(parameters,
                                                                                   lr=rate))
            done = client.next()
            self.assertFalse(done.counted)
            self.assertIn("not finite: lower the learning rate", done.reason)
            rate = 0.05
            self.assertTrue(client.next().counted)  # The client downloaded the whole model again.
            self.assertIsNone(client.next())
            self.assertEqual([one["abandoned"] for one in server.end()["rounds"]], [True, False])

    def test_secure_aggregation_is_demanded(self):
        for demand in ({"secure": True}, {"secure_active": True}, {"secure_threshold": 2}):
            with self.subTest(**demand), Server(**ALONE) as server:
                done = server.client(0, **demand).next()
                self.assertFalse(done.counted)
                self.assertIn("asks for an update that it could read", done.reason)

    def test_an_error_in_the_training_leaves_the_round(self):
        def fail(outputs, targets):
            raise LookupError("no such loss")

        with Server(rounds=1, **ALONE) as server:
            failing = server.client(0, loss=fail)
            with self.assertRaisesRegex(LookupError, "no such loss"):
                failing.run()
            self.assertEqual(server.client(1).run(), 1)
            self.assertIsNone(failing.next())
            self.assertEqual([one["abandoned"] for one in server.end()["rounds"]], [True, False])

    def test_an_interrupt_ends_a_client_that_waits(self):
        asked = threading.Event()

        def ask():
            asked.set()
            return True

        def interrupt():
            if asked.wait(60):
                os.kill(os.getpid(), signal.SIGINT)

        with Server() as server:  # It needs two more clients.
            client = server.client(0, eligible=ask)
            thread = threading.Thread(target=interrupt)
            thread.start()
            with self.assertRaises(KeyboardInterrupt):
                client.run()
            thread.join()
            self.assertIsNone(client.next())

    def test_a_limit_ends_the_training(self):
        limits = gradwire.FederatedLimits(round_s=1e-9)
        with Server(**ALONE) as server:
            done = server.client(0, limits=limits).next()
            self.assertEqual((done.counted, done.steps), (False, 0))
            self.assertIn("limit of compute", done.reason)

    def test_eligibility_is_asked(self):
        answers = []

        def is_idle():
            answers.append(threading.current_thread())
            return True

        with Server(rounds=1, **ALONE) as server:
            self.assertEqual(server.client(0, eligible=is_idle).run(), 1)
            self.assertGreaterEqual(len(answers), 1)

    def test_a_client_that_is_not_eligible_waits_until_it_is_stopped(self):
        asked = threading.Event()

        def never():
            asked.set()
            return False

        with Server(**ALONE) as server:
            client = server.client(0, eligible=never)
            counted = []
            running = threading.Thread(target=lambda: counted.append(client.run()))
            running.start()
            self.assertTrue(asked.wait(60))
            client.stop()
            running.join(60)
            self.assertEqual(counted, [0])

    def test_plans_of_other_optimizers_and_proximal(self):
        for local in ({"optimizer": "adam", "learning_rate": 0.01}, {"optimizer": "adagrad"},
                      {"learning_rate": 0.05, "proximal": 0.1, "batch_size": 0}):
            with self.subTest(local), Server(rounds=2, **ALONE, local=local) as server:
                client = server.client(2, held_out=points(60, seed=5))
                self.assertIn("seed", client.configuration())
                rounds = []
                self.assertEqual(client.run(rounds.append), 2)
                self.assertEqual(rounds[0].before.samples, 60)
                self.assertLess(rounds[1].before.loss, rounds[0].before.loss)


if __name__ == "__main__":
    clients = fork_server.ForkServer("torch._dynamo")  # For torch.optim.
    try:
        unittest.main()
    finally:
        clients.close()
