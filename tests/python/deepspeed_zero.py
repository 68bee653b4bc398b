"""DeepSpeed's ZeRO stages over gradwire on two ranks, compared with one process that has all data.

Runs as the test python.deepspeed if DeepSpeed is installed; otherwise ctest lists it as not run.
DeepSpeed's single-machine optimizations are disabled."""

import os
import unittest

os.environ["DS_ACCELERATOR"] = "cpu"

import ranks  # noqa: E402

import gradwire  # noqa: E402, F401: registers the backend

import deepspeed  # noqa: E402
import deepspeed.ops  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402

STEPS = 4

# Its all-reduce through shared memory, which it would have to compile first.
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 5))


def loss_of(model, step, rank):
    generator = torch.Generator().manual_seed(100 * step + rank)
    x = torch.randn(6, 12, generator=generator)
    return nn.functional.cross_entropy(
        model(x), torch.randint(0, 5, (6,), generator=generator))


def adam(model):
    return torch.optim.AdamW(model.parameters(), lr=0.01)


def trained_alone(size):
    model = network()
    optimizer = adam(model)
    for step in range(STEPS):
        optimizer.zero_grad()
        (sum(loss_of(model, step, rank) for rank in range(size)) / size).backward()
        optimizer.step()
    return {name: value.detach() for name, value in model.named_parameters()}


def trained_by_deepspeed(stage):
    model = network()
    engine, *_ = deepspeed.initialize(
        model=model, optimizer=adam(model), dist_init_required=False,
        config={"train_micro_batch_size_per_gpu": 6, "zero_allow_untested_optimizer": True,
                "zero_optimization": {"stage": stage}})
    for step in range(STEPS):
        loss = loss_of(engine, step, dist.get_rank())
        engine.backward(loss)
        engine.step()
    parameters = dict(model.named_parameters())
    with deepspeed.zero.GatheredParameters(list(parameters.values()), enabled=stage == 3):
        return {name: value.detach().clone() for name, value in parameters.items()}


class Zero(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        deepspeed.init_distributed(dist_backend="gradwire", auto_mpi_discovery=False,
                                   init_method="file://" + ranks.folder("store"),
                                   rank=int(os.environ["RANK"]),
                                   world_size=int(os.environ["WORLD_SIZE"]))
        cls.truth = trained_alone(dist.get_world_size())

    @classmethod
    def tearDownClass(cls):
        dist.destroy_process_group()

    def check(self, stage):
        self.assertEqual(dist.get_backend(), "gradwire")
        for name, value in trained_by_deepspeed(stage).items():
            torch.testing.assert_close(value, self.truth[name], rtol=1e-4, atol=1e-5)

    def test_stage_0(self):
        self.check(0)

    def test_stage_1(self):
        self.check(1)

    def test_stage_2(self):
        self.check(2)

    def test_stage_3(self):
        self.check(3)


if __name__ == "__main__":
    ranks.main(2, backend=None)
