"""The training host fed with tensors from Python, on three ranks: the binding that training classes
in Python stand on. Results are those of one process with all samples."""

import unittest
import weakref

import gradwire  # noqa: F401  Registers the backend.
import ranks
import torch
import torch.distributed as dist
from gradwire import _core

RATE = 0.1
STEPS = 5


def layers():
    """Returns two layers as tensors by name; each is a block."""
    generator = torch.Generator().manual_seed(5)
    return {"first": (0.3 * torch.randn(6, 11, generator=generator)).requires_grad_(),
            "second": (0.3 * torch.randn(11, 3, generator=generator)).requires_grad_()}


def samples(step, rank):
    return torch.randn(4, 6, generator=torch.Generator().manual_seed(100 * step + rank))


def loss_of(outputs):
    return (outputs - 1).square().mean()


def trained_alone(steps=STEPS):
    tensors = layers()
    for step in range(steps):
        inputs = torch.cat([samples(step, rank) for rank in range(dist.get_world_size())])
        loss_of(torch.tanh(inputs @ tensors["first"]) @ tensors["second"]).backward()
        descend(tensors.values())
    return tensors


@torch.no_grad()
def descend(tensors, factor=1.0):
    for tensor in tensors:
        tensor -= RATE * factor * tensor.grad
        tensor.grad = None


class Model:
    """Two layers, which a training host trains."""

    def __init__(self, overlap="full", buffers=(), step="descend", group=None, **options):
        self.tensors = layers()
        self.stepped = []
        host_options = _core.HostOptions()
        host_options.bucket_cap_mb = 0.0001  # A bucket for each.
        host_options.overlap = overlap
        host_options.forward_awaits = True
        for name, value in options.items():
            setattr(host_options, name, value)
        self.host = _core.TrainingHost(
            group or dist.group.WORLD, list(self.tensors.items()), host_options,
            buffers=list(buffers),
            step=_step_of(weakref.ref(self)) if step == "descend" else step)
        unit_of = {parameter: unit for unit, members in enumerate(self.host.units)
                   for parameter in members}
        self.blocks = [self.host.add_block([unit_of[i]]) for i in range(len(self.tensors))]

    def step(self, unit, factor):
        self.stepped.append(unit)
        members = list(self.tensors.values())
        descend([members[i] for i in self.host.units[unit]], factor)

    def loss(self, inputs):
        self.host.before_forward(True)
        hidden = self._block(0, lambda: torch.tanh(inputs @ self.tensors["first"]))
        loss = loss_of(self._block(1, lambda: hidden @ self.tensors["second"]))
        self.host.after_forward([loss])
        return loss

    def _block(self, index, compute):
        self.host.before_block(self.blocks[index])
        outputs = compute()
        self.host.after_block(self.blocks[index], [outputs])
        return outputs


def _step_of(model):
    """Does not own the model, whose host owns it."""
    return lambda unit, factor: model().step(unit, factor)


def error_of(call):
    """Returns the error's text; "" if there is none."""
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


class Host(unittest.TestCase):
    def train(self, model, steps=STEPS):
        for step in range(steps):
            model.loss(samples(step, dist.get_rank())).backward()
            model.host.begin_step()
        model.host.finish()
        return model

    def assert_equal_to_one_process(self, tensors):
        for name, tensor in trained_alone().items():
            torch.testing.assert_close(tensors[name], tensor, rtol=1e-5, atol=1e-6)

    def test_trains_as_one_process_does(self):
        for overlap in ("none", "backward", "full"):
            with self.subTest(overlap=overlap):
                model = self.train(Model(overlap))
                self.assert_equal_to_one_process(model.tensors)
                self.assertEqual(sorted(model.stepped), sorted(STEPS * [0, 1]))

    def test_averages_without_stepping(self):
        model = Model("backward", step=None)
        for step in range(STEPS):
            model.loss(samples(step, dist.get_rank())).backward()
            model.host.finish()
            descend(model.tensors.values())
        self.assert_equal_to_one_process(model.tensors)

    def test_accumulates(self):
        model = Model()
        for step in range(STEPS):
            for synchronizes, part in ((False, slice(0, 2)), (True, slice(2, 4))):
                model.host.set_synchronizes(synchronizes)
                (model.loss(samples(step, dist.get_rank())[part]) / 2).backward()
            model.host.begin_step()
        model.host.finish()
        self.assert_equal_to_one_process(model.tensors)

    def test_factor(self):
        models = [Model(), Model()]
        for model, factor in zip(models, (1.0, 0.5)):
            model.loss(samples(0, dist.get_rank())).backward()
            model.host.begin_step(factor)
            model.host.finish()
        for name, start in layers().items():
            torch.testing.assert_close(models[1].tensors[name] - start,
                                       0.5 * (models[0].tensors[name] - start))

    @ranks.needs("codecs")
    def test_abandoned_steps_leave_no_trace(self):
        results = []
        for abandons in (True, False):
            buffer = torch.zeros(2)
            model = Model(buffers=[("buffer", buffer)], can_abandon=True, codec="top_k:0.1",
                          codec_min_elements=1)
            for step in range(STEPS):
                if abandons:
                    model.loss(samples(50 + step, dist.get_rank())).backward()
                    buffer += 1
                    model.host.abandon_step()
                model.loss(samples(step, dist.get_rank())).backward()
                buffer += 2
                model.host.begin_step()
            model.host.finish()
            results.append([buffer, *model.tensors.values()])
        for one, other in zip(*results):
            self.assertTrue(one.equal(other))

    def test_buffers_are_those_of_rank_0(self):
        buffer = torch.full((3,), float(dist.get_rank()))
        model = Model(buffers=[("buffer", buffer)])
        model.host.synchronize_buffers()
        self.assertEqual(buffer.tolist(), [0, 0, 0])

    def test_what_the_host_refuses(self):
        for options, expected in (({"overlap": "some"}, "choose none, backward or full"),
                                  ({"bucket_cap_mb": 0}, "it must be positive"),
                                  ({"codec": "zip"}, "zip"),
                                  ({"step": None}, "requires a function that steps")):
            with self.subTest(options=options):
                text = error_of(lambda: Model(**options))
                has_codecs = ranks.BACKEND == "gradwire" or "codec" not in options
                self.assertIn("ValueError" if has_codecs else "RuntimeError", text)
                self.assertIn(expected, text)

    def test_parameters_and_numbers_that_are_none(self):
        options = _core.HostOptions()
        for wrong in (torch.zeros(3), 2 * torch.zeros(3).requires_grad_()):
            text = error_of(lambda: _core.TrainingHost(
                dist.group.WORLD, [("wrong", wrong)], options))
            self.assertIn("ValueError: parameter 'wrong' is not trainable", text)
        self.assertIn("TypeError", error_of(lambda: _core.TrainingHost(None, [], options)))
        host = Model().host
        self.assertIn("unit 2 is none of 2", error_of(lambda: host.add_block([2])))
        self.assertIn("block 2 is none of 2", error_of(lambda: host.before_block(2)))
        self.assertIn("block 9 is none of 2", error_of(lambda: host.after_block(9, [])))

    @ranks.needs("an abort that ends the group on all ranks")
    def test_an_error_of_one_ranks_step_ends_the_group(self):
        group = dist.new_group()

        def step(unit, factor):
            if dist.get_rank() == 1:
                raise KeyError(f"unit {unit} has no room")

        options = _core.HostOptions()
        options.overlap = "none"
        tensors = layers()
        host = _core.TrainingHost(group, list(tensors.items()), options, step=step)
        host.before_forward(True)
        loss = loss_of(samples(0, dist.get_rank()) @ tensors["first"] @ tensors["second"])
        host.after_forward([loss])
        loss.backward()
        dist.barrier()  # All have the means: rank 1 then fails.
        text = error_of(host.begin_step)
        if dist.get_rank() == 1:
            self.assertIn("KeyError", text)
        text = error_of(lambda: dist.all_reduce(torch.ones(1), group=group))
        self.assertIn("unit 0 has no room", text)

    def test_frees_the_host_with_its_model(self):
        model = self.train(Model(), steps=1)
        released = weakref.ref(model)
        del model
        self.assertIsNone(released())


if __name__ == "__main__":
    ranks.main(3)
