"""Compressed gradients for DistributedDataParallel.

    model = DistributedDataParallel(net)
    gradwire.hooks.int8(model)                     # or register(model, "top_k:0.01")

A hook averages DDP's buckets through one of gradwire's codecs, with error feedback: the codec's
error of a gradient is added to the next one. The result is bitwise identical on all ranks. DDP
rebuilds its buckets after its first step, so the first two steps are uncompressed. The hook runs
entirely in C++. The codecs are those of `gradwire train` and `gradwire bench codec`
(docs/compression.md).
"""

from gradwire.backend import backend_of


class Hook:
    """A codec registered on one model. `state_dict()` belongs into this rank's checkpoint."""

    def __init__(self, core, codec):
        self._core = core
        self.codec = codec

    def __repr__(self):
        return f"<gradwire hook: {self._core.describe()}>"

    def describe(self):
        """Returns one line that says how gradients are sent, and why."""
        return self._core.describe()

    def state_dict(self):
        """Returns a copy of this rank's error-feedback residuals, {name: one-dimensional tensor}.
        Call it between steps."""
        return dict(self._core.state())

    def load_state_dict(self, state):
        """Restores the state_dict() of an earlier run of the same model on as many ranks; every
        rank loads its own, between steps. Raises ValueError that names a tensor of another size.
        If the codec has not started yet, that is a RuntimeError in the first backward that uses
        it."""
        self._core.load_state(list(state.items()))


def register(model, codec=None, *, warmup_steps=0, seed=1):
    """Makes `model` (a DistributedDataParallel over a gradwire group) average its gradients with
    `codec`: "none", "bf16", "fp16", "int8", "int4", "one_bit", "top_k:FRACTION", "power_sgd:RANK",
    "auto", ...; None: the codec of the group's Options. Gradients of an accelerator are encoded on
    the host, even if the accelerator has another backend ("cpu:gradwire,cuda:nccl").

    warmup_steps: steps until the codec applies in full.
    seed: for codecs that use random numbers; the same on all ranks.

    Call it once, before the first backward, with the same arguments on every rank. Returns a Hook.
    Raises ValueError for an unknown codec (lists the known ones), and for a model that is not a
    DDP or is over another backend; RuntimeError for a model that already has a hook.
    """
    reducer = getattr(model, "reducer", None)
    if reducer is None:
        raise ValueError(f"a hook needs a DistributedDataParallel, not {type(model).__name__}")
    backend = _backend_for(model)
    if codec is None:
        codec = backend.options.codec
    return Hook(backend.add_codec_hook(reducer, codec, warmup_steps, seed), codec)


def _backend_for(model):
    """Returns the backend of the gradients' device, otherwise that of the CPU."""
    try:
        return backend_of(model.process_group, next(model.parameters()).device)
    except ValueError:
        return backend_of(model.process_group)


def bf16(model, **options):
    """register(model, "bf16"): half the bytes."""
    return register(model, "bf16", **options)


def fp16(model, **options):
    """register(model, "fp16"): half the bytes, scaled to fit."""
    return register(model, "fp16", **options)


def int8(model, **options):
    """register(model, "int8"): a quarter of the bytes."""
    return register(model, "int8", **options)


def int4(model, **options):
    """register(model, "int4"): an eighth of the bytes."""
    return register(model, "int4", **options)


def one_bit(model, **options):
    """register(model, "one_bit"): signs, a 32nd of the bytes."""
    return register(model, "one_bit", **options)


def top_k(model, fraction=0.01, **options):
    """register(model, "top_k:FRACTION"): only the largest `fraction` (0..1) of the values."""
    return register(model, f"top_k:{fraction}", **options)


def power_sgd(model, rank=1, **options):
    """register(model, "power_sgd:RANK"): matrices as products of two factors of `rank` columns."""
    return register(model, f"power_sgd:{rank}", **options)


def auto(model, codec="int8", **options):
    """register(model, "auto:CODEC"): that codec while it makes steps shorter, none otherwise."""
    return register(model, f"auto:{codec}", **options)
