"""Codec hooks and the step trace, on three ranks, against what is computed or measured here."""

import json
import os
import time
import unittest

import gradwire
import ranks
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

COUNT = 4096
AS_THEY_ARE = 2  # Steps before codecs begin.


class Slope(nn.Module):
    """Its gradient is what it is given."""

    def __init__(self, count=COUNT):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(count))

    def forward(self, slope):
        return (self.weight * slope).sum()


def slope_of(rank):
    return torch.randn(COUNT, generator=torch.Generator().manual_seed(rank))


def learn_digits(codec, steps=60):
    """Losses of a small network, its hook and itself."""
    torch.manual_seed(0)
    model = DistributedDataParallel(
        nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 5)))
    hook = gradwire.hooks.register(model, codec)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    generator = torch.Generator().manual_seed(dist.get_rank())
    x, y = torch.randn(6, 12, generator=generator), torch.randint(0, 5, (6,), generator=generator)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, hook, model


class Means(unittest.TestCase):
    """Every step's gradient is the same, and so is the true mean."""

    def setUp(self):
        self.truth = sum(slope_of(r) for r in range(dist.get_world_size())) / dist.get_world_size()

    def averaged(self, codec, steps):
        """The gradients after each of the coded steps."""
        model = DistributedDataParallel(Slope())
        gradwire.hooks.register(model, codec)
        results = []
        for _ in range(AS_THEY_ARE + steps):
            model.zero_grad()
            model(slope_of(dist.get_rank())).backward()
            results.append(model.module.weight.grad.clone())
        for plain in results[:AS_THEY_ARE]:
            torch.testing.assert_close(plain, self.truth)
        return results[AS_THEY_ARE:]

    def test_bf16_rounds_what_is_sent_and_what_comes_back(self):
        result, = self.averaged("bf16", 1)
        sent = [slope_of(r).bfloat16().float() for r in range(dist.get_world_size())]
        truth = (sum(sent) / len(sent)).bfloat16().float()
        one_unit = 2.0 ** -7  # Where the sum's last bit decides the rounding.
        torch.testing.assert_close(result, truth, rtol=one_unit, atol=0)
        self.assertGreater((result == truth).float().mean(), 0.99)

    def test_top_k_sends_so_many(self):
        result, = self.averaged("top_k:0.01", 1)
        self.assertGreater(result.count_nonzero(), 0)
        self.assertLessEqual(result.count_nonzero(), dist.get_world_size() * 0.011 * COUNT)

    def test_what_is_lost_comes_later(self):
        """The sum over steps misses the true one by what is still kept back, however long it goes
        on; without error feedback it would miss as much in every step."""
        steps = 40
        for codec, missing in {"int8": 0.1, "int4": 1, "top_k:0.2": 20}.items():
            with self.subTest(codec):
                results = self.averaged(codec, steps)
                error = (sum(results) - steps * self.truth).abs().max().item()
                self.assertLess(error, missing)
                self.assertGreater((results[0] - self.truth).abs().max().item() * steps, 2 * error)


class Hooks(unittest.TestCase):
    def test_codecs_learn_as_without(self):
        plain, _, _ = learn_digits("none")
        for codec in ("bf16", "int8", "int4", "top_k:0.2", "power_sgd:2"):
            with self.subTest(codec):
                losses, hook, model = learn_digits(codec)
                self.assertLess(losses[-1], (plain[0] + 3 * plain[-1]) / 4)
                everywhere = [None] * dist.get_world_size()
                dist.all_gather_object(everywhere, [p.tolist() for p in model.parameters()])
                self.assertTrue(all(one == everywhere[0] for one in everywhere))
                self.assertNotIn("as they are", hook.describe().partition(":")[0])

    def test_state(self):
        _, hook, _ = learn_digits("int4", 5)
        state = hook.state_dict()
        self.assertTrue(any(name.endswith(".sent") for name in state), list(state))
        hook.load_state_dict(state)
        for name, value in hook.state_dict().items():
            self.assertTrue(torch.equal(value, state[name]), name)

    def test_mistakes(self):
        model = DistributedDataParallel(nn.Linear(2, 2))
        with self.assertRaisesRegex(ValueError, "unknown codec.*int8"):
            gradwire.hooks.register(model, "int9")
        with self.assertRaisesRegex(ValueError, "DistributedDataParallel, not Linear"):
            gradwire.hooks.int8(nn.Linear(2, 2))
        other = DistributedDataParallel(nn.Linear(2, 2),
                                        process_group=dist.new_group(backend="gloo"))
        with self.assertRaisesRegex(ValueError, "gloo, not gradwire"):
            gradwire.hooks.int8(other)


class Tracing(unittest.TestCase):
    STEPS = 6

    def test_spans_are_what_happened(self):
        """Times as Python's own clock has them, bytes as the model has them, on every rank."""
        file = ranks.folder("trace.json")
        model = DistributedDataParallel(Slope())
        trace = gradwire.trace(file, hook=gradwire.hooks.register(model, "none"))
        measured = []
        for _ in range(self.STEPS):
            before = time.perf_counter()
            with trace.step(), trace.part("backward"):
                inside = time.perf_counter()
                model(slope_of(dist.get_rank())).backward()
                inside = time.perf_counter() - inside
            measured.append((inside, time.perf_counter() - before))
        summary = trace.finish()
        everywhere = [None] * dist.get_world_size()
        dist.all_gather_object(everywhere, measured)
        self.assertEqual(summary is not None, dist.get_rank() == 0)
        if dist.get_rank() != 0:
            return
        self.assertRegex(summary, rf"Trace of {self.STEPS} steps on {dist.get_world_size()} ranks")
        with open(file, encoding="utf-8") as stream:
            spans = [e for e in json.load(stream)["traceEvents"] if e["ph"] == "X"]
        for rank, times in enumerate(everywhere):
            mine = [span for span in spans if span["pid"] == rank]
            for name in ("step", "backward"):
                found = [span for span in mine if span["name"] == name]
                self.assertEqual([s["args"]["step"] for s in found], list(range(self.STEPS)), name)
                for span, (least, most) in zip(found, times):
                    self.assertGreaterEqual(span["dur"] * 1e-6, least - 2e-6)
                    self.assertLessEqual(span["dur"] * 1e-6, most + 2e-6)
            buckets = [s for s in mine if s["args"].get("bytes") == 4 * COUNT
                       and s["name"] not in ("step", "backward")]
            self.assertGreaterEqual(len(buckets), self.STEPS - AS_THEY_ARE, mine[:9])

    def test_a_file_that_cannot_be_written_is_said_at_once(self):
        """By the rank that writes it."""
        if dist.get_rank() == 0:
            open(ranks.folder("no-folder"), "w", encoding="utf-8").close()
            with self.assertRaisesRegex(RuntimeError, "no-folder"):
                gradwire.trace(os.path.join(ranks.folder("no-folder"), "trace.json"))


if __name__ == "__main__":
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    ranks.main(3)
