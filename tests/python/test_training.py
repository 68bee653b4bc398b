"""PyTorch's distributed training, unmodified, over gradwire and over Gloo: the same models, data
and steps must give the same parameters. Three ranks."""

import os
import unittest

import ranks
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 4


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(12, 24)
        self.norm = nn.BatchNorm1d(24)
        self.unused = nn.Linear(3, 3)
        self.second = nn.Linear(24, 5)

    def forward(self, x):
        return self.second(torch.relu(self.norm(self.first(x))))


def batch(step, rank):
    generator = torch.Generator().manual_seed(100 * step + rank)
    return (torch.randn(6, 12, generator=generator),
            torch.randint(0, 5, (6,), generator=generator))


def train(model, optimizer, steps=STEPS):
    for step in range(steps):
        x, y = batch(step, dist.get_rank())
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def seeded(make):
    torch.manual_seed(0)
    return make()


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.gloo = dist.new_group(backend="gloo")
        cls.ours = dist.new_group()

    def same(self, ours, gloo, tolerance):
        self.assertEqual(list(ours), list(gloo))
        for name, value in ours.items():
            torch.testing.assert_close(value, gloo[name], rtol=10 * tolerance, atol=tolerance)

    def both(self, run, tolerance=1e-5):
        """Tolerance for sums in another order: a few units in the last place, which training
        amplifies."""
        self.same(run(self.ours), run(self.gloo), tolerance)


class DataParallel(Case):
    def test_ddp(self):
        def run(group, **options):
            model = DistributedDataParallel(seeded(Net), process_group=group,
                                            find_unused_parameters=True, **options)
            return train(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))

        self.both(run)
        self.both(lambda group: run(group, bucket_cap_mb=0.001, gradient_as_bucket_view=True))

    def test_ddp_with_pytorchs_hooks(self):
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

        def run(group, hook, state=None):
            model = DistributedDataParallel(seeded(Net), process_group=group,
                                            find_unused_parameters=True)
            model.register_comm_hook(state or group, hook)
            return train(model, torch.optim.SGD(model.parameters(), lr=0.1))

        self.both(lambda group: run(group, default_hooks.fp16_compress_hook), 1e-3)

        def one_at_a_time(state, bucket):  # Continues in callbacks, at arbitrary times.
            future = powerSGD_hook.powerSGD_hook(state, bucket)
            future.wait()
            return future

        state = powerSGD_hook.PowerSGDState(self.ours, 1, start_powerSGD_iter=2)
        result = run(self.ours, one_at_a_time, state)
        for value in result.values():
            self.assertTrue(torch.isfinite(value).all())

    def test_zero_redundancy_optimizer(self):
        from torch.distributed.optim import ZeroRedundancyOptimizer

        def plain():  # No bias before a norm: its gradient is noise that Adam amplifies.
            return nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 5))

        def run(group):
            model = DistributedDataParallel(seeded(plain), process_group=group)
            return train(model, ZeroRedundancyOptimizer(
                model.parameters(), torch.optim.Adam, process_group=group, lr=0.01))

        self.both(run)

    def test_uneven_inputs(self):
        def run(group):
            model = DistributedDataParallel(seeded(lambda: nn.Linear(12, 5)), process_group=group)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            with model.join():
                return train(model, optimizer, steps=2 + dist.get_rank())

        ours, gloo = run(self.ours), run(self.gloo)
        self.same(ours, gloo, 1e-5)


class Sharded(Case):
    def mesh(self, group):
        return dist.DeviceMesh.from_group(group, "cpu", mesh_dim_names=("all",))

    def test_fully_shard(self):
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        def run(group, **options):
            model = seeded(lambda: nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 5)))
            for layer in (model[0], model[2]):
                fully_shard(layer, mesh=self.mesh(group), **options)
            fully_shard(model, mesh=self.mesh(group), **options)
            train(model, torch.optim.AdamW(model.parameters(), lr=0.01))
            return {name: value.full_tensor() for name, value in model.state_dict().items()}

        self.both(run)
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        self.both(lambda group: run(group, mp_policy=policy), 1e-3)

    def test_tensor_parallel(self):
        from torch.distributed.tensor.parallel import (
            ColwiseParallel, RowwiseParallel, parallelize_module)

        def run(group):
            model = seeded(lambda: nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 5)))
            parallelize_module(model, self.mesh(group),
                               {"0": ColwiseParallel(), "2": RowwiseParallel()})
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for step in range(STEPS):
                x, y = batch(step, 0)  # The same on every rank.
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()
            return {name: value.full_tensor() if hasattr(value, "full_tensor") else value
                    for name, value in model.state_dict().items()}

        self.both(run)

    def test_dtensor(self):
        from torch.distributed.tensor import Replicate, Shard, distribute_tensor

        def run(group):
            mesh = self.mesh(group)
            whole = torch.arange(42.0).view(7, 6)  # Three ranks cannot share it equally.
            rows = distribute_tensor(whole, mesh, [Shard(0)])
            columns = rows.redistribute(mesh, [Shard(1)])
            product = torch.mm(rows, distribute_tensor(whole.t().contiguous(), mesh, [Replicate()]))
            return {"columns": columns.full_tensor(), "product": product.full_tensor(),
                    "sum": rows.sum().full_tensor()}

        self.both(run, tolerance=0)

    def test_checkpoints(self):
        import torch.distributed.checkpoint as dcp
        from torch.distributed.tensor import Shard, distribute_tensor

        def run(group):
            mesh = self.mesh(group)
            name = "ours" if group is self.ours else "gloo"
            whole = torch.arange(35.0).view(7, 5)
            saved = {"w": distribute_tensor(whole, mesh, [Shard(0)]), "step": 3}
            dcp.save(saved, checkpoint_id=ranks.folder(name), process_group=group)
            loaded = {"w": distribute_tensor(torch.zeros(7, 5), mesh, [Shard(1)]), "step": 0}
            dcp.load(loaded, checkpoint_id=ranks.folder(name), process_group=group)
            self.assertEqual(loaded["step"], 3)
            return {"w": loaded["w"].full_tensor()}

        self.both(run, tolerance=0)


class Stage(nn.Module):
    def __init__(self, rank):
        super().__init__()
        self.linear = nn.Linear(12, 12)
        self.rank = rank

    def forward(self, x):
        return torch.relu(self.linear(x))


class Pipelines(Case):
    def test_schedules(self):
        from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

        def run(group, schedule_class):
            rank, size = dist.get_rank(), dist.get_world_size()
            module = seeded(lambda: Stage(rank))
            stage = PipelineStage(module, rank, size, torch.device("cpu"), group=group)
            schedule = schedule_class(stage, n_microbatches=4,
                                      loss_fn=lambda y, target: (y - target).square().sum())
            x = torch.randn(8, 12, generator=torch.Generator().manual_seed(1))
            losses = []
            if rank == 0:
                schedule.step(x)
            elif rank == size - 1:
                schedule.step(target=torch.ones(8, 12), losses=losses)
            else:
                schedule.step()
            return {**{name: p.grad for name, p in module.named_parameters()},
                    "losses": torch.stack(losses) if losses else torch.zeros(1)}

        for kind in (ScheduleGPipe, Schedule1F1B):
            self.both(lambda group, kind=kind: run(group, kind), tolerance=0)


if __name__ == "__main__":
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    ranks.main(3)
