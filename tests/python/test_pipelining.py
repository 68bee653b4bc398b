"""PyTorch's pipelining runtime executes gradwire's schedules, and trains as one process does. Four
ranks."""

import os
import unittest

import ranks
import torch
import torch.distributed as dist
from gradwire.pipeline import Costs, Schedule
from torch import nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import get_schedule_class

LAYERS, WIDTH, SAMPLES, STEPS = 8, 12, 16, 3
COSTS = Costs(forward=0.02, backward_input=0.02, backward_weight=0.02, message_bytes=1 << 20,
              network="1gbe")


class Block(nn.Module):
    """A residual block, whose normalization has parameters that are no matrices."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return x + torch.tanh(self.linear(self.norm(x)))


def layers():
    torch.manual_seed(0)
    return [Block() for _ in range(LAYERS)]


def module_of(stage, stages):
    size = LAYERS // stages
    return nn.Sequential(*layers()[stage * size : (stage + 1) * size])


def loss_of(output, target):
    return (output - target).square().sum() / SAMPLES


def batch(step, replica=0):
    generator = torch.Generator().manual_seed(100 * replica + step)
    return (torch.randn(SAMPLES, WIDTH, generator=generator),
            torch.randn(SAMPLES, WIDTH, generator=generator))


def optimizer_of(parameters):
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


def one_process(micro_batches, replica=0):
    """Returns losses of all steps, and the parameters after them, by layer."""
    model = layers()
    optimizer = optimizer_of(nn.Sequential(*model).parameters())
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        x, y = batch(step, replica)
        for part, target in zip(x.chunk(micro_batches), y.chunk(micro_batches)):
            loss = loss_of(nn.Sequential(*model)(part), target)
            loss.backward()
            losses.append(loss.detach())
        optimizer.step()
    return losses, [list(layer.parameters()) for layer in model]


class Case(unittest.TestCase):
    def train(self, schedule, group=None, replica=0, steps=STEPS):
        """Returns losses, on the last stage's rank, and the modules of this rank by stage."""
        rank = dist.get_rank(group)
        modules = {stage: module_of(stage, schedule.stages) for stage in schedule.stages_of(rank)}
        stages = [PipelineStage(module, stage, schedule.stages, torch.device("cpu"), group=group)
                  for stage, module in modules.items()]
        runtime = schedule.runtime(stages, loss_of, scale_grads=False)
        optimizer = optimizer_of([p for module in modules.values() for p in module.parameters()])
        losses = []
        for step in range(steps):
            optimizer.zero_grad()
            x, y = batch(step, replica)
            parts = []
            last = {"target": y, "losses": parts} if schedule.stages - 1 in modules else {}
            runtime.step(*([x] if 0 in modules else []), **last)
            losses += [part.detach() for part in parts]
            optimizer.step()
        return losses, modules

    def trains_as_one_process(self, schedule, group=None, replica=0):
        losses, modules = self.train(schedule, group, replica)
        expected, parameters = one_process(schedule.micro_batches, replica)
        if schedule.stages - 1 in modules:
            self.assertEqual(len(losses), STEPS * schedule.micro_batches)
            for found, truth in zip(losses, expected):
                self.assertTrue(torch.equal(found, truth), (schedule, found, truth))
        size = LAYERS // schedule.stages
        for stage, module in modules.items():
            for number, layer in enumerate(module):
                truth = parameters[stage * size + number]
                for found, exact in zip(layer.parameters(), truth, strict=True):
                    self.assertTrue(torch.equal(found, exact), (schedule, stage, number))


class Runtime(Case):
    def test_schedules_train_as_one_process(self):
        for name in ("gpipe", "1f1b", "1f1b:2", "interleaved", "zero_bubble_h1", "zero_bubble",
                     "zero_bubble:3", "zero_bubble_v", "auto"):
            with self.subTest(name):
                schedule = Schedule.named(name, ranks=4, micro_batches=8, costs=COSTS)
                self.trains_as_one_process(schedule)

    def test_a_search_trains_as_one_process(self):
        for limits in (None, 2, [4, 3, 2, 1]):
            with self.subTest(limits):
                schedule = Schedule.search(ranks=4, micro_batches=8, costs=COSTS, kept=limits)
                self.trains_as_one_process(schedule)

    def test_micro_batches_need_not_be_a_multiple_of_the_ranks(self):
        for name in ("interleaved", "zero_bubble"):
            with self.subTest(name):
                self.trains_as_one_process(Schedule.named(name, ranks=4, micro_batches=2))

    def test_two_pipelines_side_by_side(self):
        """Ranks in the group are not those of the job."""
        groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        replica = dist.get_rank() // 2
        for name in ("1f1b", "interleaved:4", "zero_bubble_v"):
            with self.subTest(name):
                schedule = Schedule.named(name, ranks=2, micro_batches=4)
                self.trains_as_one_process(schedule, groups[replica], replica)

    def test_a_schedule_from_csv_is_the_same(self):
        schedule = Schedule.named("zero_bubble_v", ranks=4, micro_batches=8)
        self.trains_as_one_process(Schedule.from_csv(schedule.to_csv()))

    def test_eval_runs_the_forwards(self):
        schedule = Schedule.named("zero_bubble", ranks=4, micro_batches=4)
        rank = dist.get_rank()
        module = module_of(rank, 4)
        stage = PipelineStage(module, rank, 4, torch.device("cpu"))
        x, y = batch(0)
        output = schedule.runtime(stage, loss_of).eval(*([x] if rank == 0 else []),
                                                       **({"target": y} if rank == 3 else {}))
        if rank == 3:
            with torch.no_grad():
                expected = nn.Sequential(*layers())(x)
            torch.testing.assert_close(output, expected)
        self.assertTrue(all(p.grad is None for p in module.parameters()))


class PyTorchsSchedules(Case):
    def read(self, name, v):
        """Reads the CSV of PyTorch's own schedule, of eight stages on four ranks."""
        rank = dist.get_rank()
        mine = (rank, 7 - rank) if v else (rank, rank + 4)
        stages = [PipelineStage(module_of(each, 8), each, 8, torch.device("cpu")) for each in mine]
        file = ranks.folder(f"{name}{rank}.csv")
        made = get_schedule_class(name)(stages, 8, loss_fn=loss_of)
        made._dump_csv(file, format="compute_only")
        with open(file, encoding="ascii") as stream:
            schedule = Schedule.from_csv(stream.read(), name=name)
        self.assertEqual(schedule.stages_of(rank), mine)
        self.assertEqual((schedule.ranks, schedule.micro_batches), (4, 8))
        return schedule

    def test_its_csv_is_read(self):
        for name, v in (("Interleaved1F1B", False), ("InterleavedZeroBubble", False),
                        ("ZBVZeroBubble", True)):
            with self.subTest(name):
                schedule = self.read(name, v)
                schedule.verify()
                self.trains_as_one_process(schedule)

    def test_its_order_of_sums_is_noticed(self):
        """LoopedBFS runs the backwards from the last micro-batch to the first."""
        with self.assertRaisesRegex(ValueError, "wrong_order: stage 0 computes"):
            self.read("LoopedBFS", v=False).verify()


class Refusals(Case):
    def stage(self, index, count):
        return PipelineStage(nn.Linear(2, 2), index, count, torch.device("cpu"))

    def test_what_pytorch_cannot_run(self):
        rank = dist.get_rank()
        right = Schedule.named("1f1b", ranks=4, micro_batches=4)
        with self.assertRaisesRegex(ValueError, f"rank {rank} has stages.*make those of stages_of"):
            right.runtime(self.stage((rank + 1) % 4, 4))
        with self.assertRaisesRegex(ValueError, "does not fit 8 stages on 4 ranks"):
            right.runtime([self.stage(rank, 8), self.stage(rank + 4, 8)])
        with self.assertRaisesRegex(ValueError, "does not fit 4 stages on 4 ranks"):
            Schedule.named("1f1b", ranks=2, micro_batches=4).runtime(self.stage(rank, 4))
        with self.assertRaisesRegex(ValueError, "stages is empty"):
            right.runtime([])
        for name, reason in (("pipedream", "never drain"), ("2bw", "never drain|cannot run"),
                             ("forward_only", "cannot run")):
            with self.assertRaisesRegex(ValueError, f"{reason}.*zero_bubble"):
                Schedule.named(name, ranks=4, micro_batches=4).runtime(self.stage(rank, 4))
        wrong = Schedule.from_csv("0F0,0B0\n1B0,1F0\n2F0,2B0\n3F0,3B0\n")
        with self.assertRaisesRegex(ValueError, "1B0 comes before 1F0"):
            wrong.runtime(self.stage(rank, 4))


if __name__ == "__main__":
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    ranks.main(4)
