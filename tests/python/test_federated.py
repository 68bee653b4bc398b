"""gradwire.federated: simulations in one process."""

import copy
import unittest

import torch
from torch.utils.data import TensorDataset

from gradwire import federated

FEATURES, CLASSES = 12, 3


def points(count, seed=5):
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(CLASSES, FEATURES, generator=torch.Generator().manual_seed(1))
    targets = torch.arange(count) % CLASSES
    return centres[targets] + torch.randn(count, FEATURES, generator=generator), targets


def clients(count=10):
    """Client k has 6 (k + 1) samples."""
    inputs, targets = points(6 * count * (count + 1) // 2)
    sizes = [6 * (k + 1) for k in range(count)]
    return [TensorDataset(*parts) for parts in zip(inputs.split(sizes), targets.split(sizes))]


def model():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(FEATURES, 8), torch.nn.Tanh(),
                               torch.nn.Linear(8, CLASSES))


def sgd(rate, **options):
    return lambda parameters: torch.optim.SGD(parameters, lr=rate, **options)


class Simulate(unittest.TestCase):
    def test_one_epoch_of_the_whole_batch_on_all_clients_is_one_step_on_all_data(self):
        net, datasets = model(), clients()
        other = copy.deepcopy(net).double()
        federated.simulate(net, datasets, rounds=1, batch_size=0, optimizer=sgd(0.1))
        inputs = torch.cat([one.tensors[0] for one in datasets]).double()
        targets = torch.cat([one.tensors[1] for one in datasets])
        torch.nn.functional.cross_entropy(other(inputs), targets).backward()
        for one, reference in zip(net.parameters(), other.parameters()):
            expected = reference - 0.1 * reference.grad
            self.assertLess((one - expected).abs().max(), 1e-6)

    def test_learns_in_three_lines(self):
        net = model()
        result = federated.simulate(net, clients(), rounds=20, use=5,
                                    test=TensorDataset(*points(300, seed=9)))
        self.assertEqual(len(result.rounds), 20)
        self.assertGreater(result.rounds[-1]["accuracy"], 0.75)
        self.assertEqual(sum(result.counted), 100)
        self.assertTrue(all(one["used"] == 5 and one["up_bytes"] > 0 for one in result.rounds))
        self.assertGreater(result.jain, 0.5)

    def test_options_meet(self):
        for options in ({"bits": 8, "rotate": True}, {"bits": 8, "rotate": True, "mask": 0.5},
                        {"secure": True, "use": 10, "least": 2}, {"partial": "normalize"},
                        {"select": "proportional"}, {"select": "fair"}, {"proximal": 0.1},
                        {"server_optimizer": lambda p: torch.optim.Adam(p, lr=0.05)},
                        {"optimizer": sgd(0.05, momentum=0.9)}):
            with self.subTest(options):
                options = {"use": 6, **options}
                result = federated.simulate(
                    model(), clients(), rounds=8, devices=federated.Devices(drop=0.05),
                    test=TensorDataset(*points(300, seed=9)), test_every=8, **options)
                self.assertGreater(result.rounds[-1]["accuracy"], 0.55)

    def test_a_secure_sum_has_the_bits_of_the_plain_one(self):
        plain, secure = model(), model()
        for net, masked in ((plain, False), (secure, True)):
            federated.simulate(net, clients(), rounds=3, use=10, least=2, secure=masked,
                               bits=8, rotate=True)
        for one, other in zip(plain.parameters(), secure.parameters()):
            self.assertTrue(one.equal(other))

    def test_repeats(self):
        nets = [model(), model()]
        for net in nets:
            federated.simulate(net, clients(), rounds=3, use=4, bits=8, rotate=True)
        for one, other in zip(*(net.parameters() for net in nets)):
            self.assertTrue(one.equal(other))

    def test_averages_buffers(self):
        net = torch.nn.Sequential(torch.nn.Linear(FEATURES, 8), torch.nn.BatchNorm1d(8),
                                  torch.nn.Linear(8, CLASSES))
        federated.simulate(net, clients(), rounds=2)
        self.assertFalse(net[1].running_var.allclose(torch.ones(8)))

    def test_refuses(self):
        with self.assertRaisesRegex(ValueError, "at least one sample"):
            federated.simulate(model(), [])
        with self.assertRaisesRegex(ValueError, "descending order"):
            federated.simulate(model(), clients(), use=5, ask=3)
        with self.assertRaisesRegex(ValueError, "did you mean"):
            federated.simulate(model(), clients(), select="unifrom")
        with self.assertRaisesRegex(ValueError, "float32"):
            federated.simulate(model().double(), clients())
        with self.assertRaisesRegex(RuntimeError, "20 rounds in a row"):
            federated.simulate(model(), clients(), devices=federated.Devices(drop=1))
        with self.assertRaisesRegex(ValueError, "not finite"):
            federated.simulate(model(), clients(), optimizer=sgd(1e38))


if __name__ == "__main__":
    unittest.main()
