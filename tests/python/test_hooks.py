"""Codec hooks and the step trace, on three ranks, compared with values computed here."""

import gc
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

SHAPE = (64, 64)
COUNT = 64 * 64
AS_THEY_ARE = 2  # Uncompressed steps before codecs begin.


class Slope(nn.Module):
    """A model whose gradient is its input: a matrix, which power_sgd needs."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(SHAPE))

    def forward(self, slope):
        return (self.weight * slope).sum()


def slope_of(rank):
    return torch.randn(SHAPE, generator=torch.Generator().manual_seed(rank))


def gradients(steps, hook_up, group=None):
    """Returns each step's averaged gradient, and the hook that `hook_up(model)` makes. A rank's
    own gradient is the same in every step."""
    model = DistributedDataParallel(Slope(), process_group=group)
    hook, results = hook_up(model), []
    for _ in range(steps):
        model.zero_grad()
        model(slope_of(dist.get_rank())).backward()
        results.append(model.module.weight.grad.clone())
    return results, hook


def learn_digits(hook_up, steps=60):
    """Trains a small network; returns its losses, the hook and the network."""
    torch.manual_seed(0)
    model = DistributedDataParallel(
        nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 5)))
    hook = hook_up(model)
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


@ranks.needs("codecs")
class Lives(unittest.TestCase):
    def test_a_hook_goes_with_its_model(self):
        def threads():
            gc.collect()  # DDP objects are in reference cycles.
            return len(os.listdir("/proc/self/task"))

        def use():
            gradients(AS_THEY_ARE + 2, gradwire.hooks.int8)

        use()
        after_one = threads()
        for _ in range(4):
            use()
        self.assertLessEqual(threads(), after_one)  # Each hook has a thread that awaits buckets.


@ranks.needs("codecs")
class Means(unittest.TestCase):
    """Every step's gradient is the same, and so is the exact mean."""

    def setUp(self):
        self.truth = sum(slope_of(r) for r in range(dist.get_world_size())) / dist.get_world_size()

    def averaged(self, codec, steps, **options):
        """Returns the gradients after each of the coded steps."""
        results, _ = gradients(AS_THEY_ARE + steps, lambda model: gradwire.hooks.register(
            model, codec, **options))
        for plain in results[:AS_THEY_ARE]:
            torch.testing.assert_close(plain, self.truth)
        return results[AS_THEY_ARE:]

    def test_bf16_rounds_what_is_sent_and_what_comes_back(self):
        result, = self.averaged("bf16", 1)
        sent = [slope_of(r).bfloat16().float() for r in range(dist.get_world_size())]
        truth = (sum(sent) / len(sent)).bfloat16().float()
        one_unit = 2.0 ** -7  # The sum's last bit decides the rounding.
        torch.testing.assert_close(result, truth, rtol=one_unit, atol=0)
        self.assertGreater((result == truth).float().mean(), 0.99)

    def test_top_k_sends_so_many(self):
        result, = self.averaged("top_k:0.01", 1)
        self.assertGreater(result.count_nonzero(), 0)
        self.assertLessEqual(result.count_nonzero(), dist.get_world_size() * 0.011 * COUNT)

    def test_what_is_lost_comes_later(self):
        """The sum over steps differs from the exact one only by the residual, after any number of
        steps. Without error feedback the difference would grow in every step."""
        steps = 40
        for codec, missing in {"int8": 0.1, "int4": 1, "top_k:0.2": 20}.items():
            with self.subTest(codec):
                results = self.averaged(codec, steps)
                error = (sum(results) - steps * self.truth).abs().max().item()
                self.assertLess(error, missing)
                self.assertGreater((results[0] - self.truth).abs().max().item() * steps, 2 * error)

    def test_warm_up(self):
        """Codecs begin after the warm-up, except that a fraction starts larger."""
        *before, after = self.averaged("int8", 4, warmup_steps=3)
        for result in before:
            torch.testing.assert_close(result, self.truth)
        self.assertFalse(torch.allclose(after, self.truth))
        counts = [g.count_nonzero() for g in self.averaged("top_k:0.01", 3, warmup_steps=2)]
        self.assertTrue(counts[0] > counts[1] > counts[2] > 0, counts)

    def test_seed(self):
        first, second, other = (self.averaged("qsgd:4", 1, seed=seed)[0] for seed in (1, 1, 2))
        self.assertTrue(torch.equal(first, second))
        self.assertFalse(torch.equal(first, other))


@ranks.needs("codecs")
class Hooks(unittest.TestCase):
    def test_every_one_learns(self):
        hooks = gradwire.hooks
        tried = {  # Codec: the part of the uncompressed loss's decrease that it may miss.
            hooks.bf16: ("bf16", 0.25), hooks.fp16: ("fp16", 0.25), hooks.int8: ("int8", 0.25),
            hooks.int4: ("int4", 0.25), hooks.one_bit: ("one_bit", 0.25),
            hooks.auto: ("auto:int8", 0.25),
            hooks.top_k: ("top_k:0.01", 0.5), hooks.power_sgd: ("power_sgd:1", 0.25),
            lambda model: hooks.top_k(model, 0.2): ("top_k:0.2", 0.25),
            lambda model: hooks.power_sgd(model, rank=2): ("power_sgd:2", 0.25),
            lambda model: hooks.auto(model, "int4"): ("auto:int4", 0.25),
        }
        plain, _, _ = learn_digits(lambda model: hooks.register(model, "none"))
        for hook_up, (codec, missing) in tried.items():
            with self.subTest(codec):
                losses, hook, model = learn_digits(hook_up)
                self.assertEqual(hook.codec, codec)
                self.assertIn(codec.partition(":")[0], hook.describe())
                self.assertNotIn("uncompressed", hook.describe())
                self.assertLess(losses[-1], plain[-1] + missing * (plain[0] - plain[-1]))
                everywhere = [None] * dist.get_world_size()
                dist.all_gather_object(everywhere, [p.tolist() for p in model.parameters()])
                self.assertTrue(all(one == everywhere[0] for one in everywhere))

    def test_the_codec_of_the_options(self):
        """Used if register() gets no codec."""
        group = dist.new_group(pg_options=gradwire.Options(codec="top_k:0.01"))
        results, hook = gradients(AS_THEY_ARE + 1, gradwire.hooks.register, group)
        self.assertEqual(hook.codec, "top_k:0.01")
        self.assertLess(results[-1].count_nonzero(), COUNT / 10)
        _, hook = gradients(1, gradwire.hooks.register)
        self.assertEqual(hook.codec, "none")

    def test_state_continues_with_the_same_bits(self):
        """In a new model and hook, whose uncompressed steps do not use the error feedback."""
        for codec in ("int4", "one_bit", "top_k:0.1", "power_sgd:2", "qsgd:4"):
            with self.subTest(codec):
                def fresh(model, codec=codec):
                    return gradwire.hooks.register(model, codec)

                whole, _ = gradients(AS_THEY_ARE + 6, fresh)
                begun, hook = gradients(AS_THEY_ARE + 4, fresh)
                saved = hook.state_dict()

                def resumed(model, saved=saved):
                    hook = fresh(model)
                    hook.load_state_dict(saved)
                    return hook

                continued, _ = gradients(AS_THEY_ARE + 2, resumed)
                for got, truth in zip(begun + continued[AS_THEY_ARE:], whole, strict=True):
                    self.assertTrue(torch.equal(got, truth))
                for got, anew in zip(continued[AS_THEY_ARE:], whole[AS_THEY_ARE:]):
                    self.assertFalse(torch.equal(got, anew))

    def test_state_of_another_size(self):
        """Is an error at once, or in the first coded step of a hook that has not begun."""
        def register(model):
            return gradwire.hooks.register(model, "int4")

        _, hook = gradients(AS_THEY_ARE + 1, register)
        wrong = {name: torch.zeros(3) for name in hook.state_dict() if name.endswith(".sent")}
        self.assertTrue(wrong)
        words = rf"bucket0\.0\.sent.*checkpoint has 3 float32, this run {COUNT} float32"
        with self.assertRaisesRegex(ValueError, words):
            hook.load_state_dict(wrong)

        def resumed(model):
            fresh = register(model)
            fresh.load_state_dict(wrong)
            return fresh

        gradients(AS_THEY_ARE, resumed)
        with self.assertRaisesRegex(RuntimeError, words):
            gradients(AS_THEY_ARE + 1, resumed)

    def test_mistakes(self):
        model = DistributedDataParallel(nn.Linear(2, 2))
        with self.assertRaisesRegex(ValueError, "unknown codec.*int8"):
            gradwire.hooks.register(model, "int9")
        with self.assertRaisesRegex(ValueError, "DistributedDataParallel, not Linear"):
            gradwire.hooks.int8(nn.Linear(2, 2))
        gradwire.hooks.int8(model)
        with self.assertRaisesRegex(RuntimeError, "can only be called once"):
            gradwire.hooks.int8(model)
        other = DistributedDataParallel(nn.Linear(2, 2),
                                        process_group=dist.new_group(backend="gloo"))
        with self.assertRaisesRegex(ValueError, "gloo, not gradwire"):
            gradwire.hooks.int8(other)


class Tracing(unittest.TestCase):
    STEPS = 6

    def test_spans_are_what_happened(self):
        """Times match Python's clock and bytes match the model, on every rank."""
        file = ranks.folder("trace.json")
        model = DistributedDataParallel(Slope())
        hook = gradwire.hooks.register(model, "none") if ranks.BACKEND == "gradwire" else None
        trace = gradwire.trace(file, hook=hook)
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
            least = self.STEPS - AS_THEY_ARE if hook else 0
            self.assertGreaterEqual(len(buckets), least, mine[:9])

    def test_a_file_that_cannot_be_written_is_said_at_once(self):
        """Reported by the rank that writes it."""
        if dist.get_rank() == 0:
            open(ranks.folder("no-folder"), "w", encoding="utf-8").close()
            with self.assertRaisesRegex(RuntimeError, "no-folder"):
                gradwire.trace(os.path.join(ranks.folder("no-folder"), "trace.json"))


if __name__ == "__main__":
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    ranks.main(3)
