"""The models and variants of bench/learning.py."""

from typing import NamedTuple


class Model(NamedTuple):
    """A model and its training; `config` is the configuration of `gradwire train`."""
    name: str
    title: str
    measure: str  # The summary's key that is compared.
    unit: str
    scale: float
    higher_is_better: bool
    config: dict
    only: tuple = ()  # Variants; empty: all.


class Variant(NamedTuple):
    """`settings` override the model's configuration."""
    name: str
    title: str
    settings: dict = {}


# Variants that send a hundred times fewer bytes, and the ones they are compared with.
LONG = ("fp32", "local:16+int4", "local:8+two_bit", "local:2+rotation:1", "local:4+rotation:1",
        "diloco:4+rotation:1")

MODELS = [
    # 464 and 608 steps are multiples of 16.
    Model("convnet", "ConvNet on Fashion-MNIST, 464 steps", "test_accuracy", "accuracy, %", 100,
          True, {
              "data": {"limit": 464 * 128},
              "model": {"name": "convnet", "channels": 16, "hidden": 128},
              "optimizer": {"name": "sgd", "learning_rate": 0.08, "momentum": 0.9},
              "schedule": {"warmup_epochs": 0.2, "decay": "cosine"},
              "epochs": 1, "batch_size": 128, "checkpoint": ""}),
    Model("text", "Transformer on the Jargon File, 608 steps", "test_loss", "nats a character", 1,
          False, {
              "data": {"name": "text", "context": 64, "limit": 608 * 32},
              "model": {"width": 64, "layers": 1, "heads": 4},
              "optimizer": {"name": "adam", "learning_rate": 0.006, "beta2": 0.99},
              "schedule": {"warmup_epochs": 0.1, "decay": "cosine"},
              "epochs": 1, "batch_size": 32, "checkpoint": ""}),
]
MODELS.append(MODELS[0]._replace(
    name="convnet-3", title=f"{MODELS[0].title}, three times over",
    config={**MODELS[0].config, "epochs": 3}, only=LONG))


def codec(spec, title):
    return Variant(spec, title, {"parallel": {"codec": spec}})


def local(name, title, **settings):
    return Variant(name, title, {"local_steps": settings})


VARIANTS = [
    Variant("fp32", "float32, gradients at each step"),
    codec("bf16", "bf16"),
    codec("fp16", "fp16, renormalised"),
    codec("int8", "8 bits a value"),
    codec("int4", "4 bits a value"),
    codec("qsgd:4", "QSGD, 4 bits"),
    codec("rotation:2", "rotation, 2 bits"),
    codec("two_bit", "2 bits"),
    codec("ternary", "ternary"),
    codec("one_bit", "1 bit"),
    codec("top_k:0.01", "largest 1 %"),
    codec("random_mask:0.1", "random 10 %"),
    codec("power_sgd:1", "PowerSGD, rank 1"),
    codec("power_sgd:2", "PowerSGD, rank 2"),
    codec("power_sgd:3", "PowerSGD, rank 3"),
    codec("power_sgd:4", "PowerSGD, rank 4"),
    local("local:16", "16 local steps", steps=16),
    local("local:16+int4", "16 local steps, 4 bits a value", steps=16, codec="int4"),
    local("local:8+two_bit", "8 local steps, 2 bits a value", steps=8, codec="two_bit"),
    local("local:4+power_sgd:2", "4 local steps, PowerSGD, rank 2", steps=4, codec="power_sgd:2"),
    local("local:4+one_bit", "4 local steps, 1 bit", steps=4, codec="one_bit"),
    local("local:2+rotation:1", "2 local steps, rotation, 1 bit", steps=2, codec="rotation:1"),
    local("local:4+rotation:1", "4 local steps, rotation, 1 bit", steps=4, codec="rotation:1"),
    local("diloco:4+rotation:1", "DiLoCo: 4 local steps, outer momentum, rotation, 1 bit", steps=4,
          outer_learning_rate=0.7, outer_momentum=0.3, codec="rotation:1"),
    local("diloco:16+int4", "DiLoCo: 16 local steps, outer momentum, 4 bits", steps=16,
          outer_learning_rate=0.7, outer_momentum=0.6, codec="int4"),
    local("streaming:16+int4", "streaming: 2 fragments, 2 steps of overlap, 4 bits", steps=16,
          fragments=2, overlap_steps=2, codec="int4"),
]
