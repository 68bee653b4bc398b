"""The models of `gradwire train` as PyTorch modules:

    from gradwire.models import load_model, normalize
    model = load_model("out/model.safetensors")
    classes = model(normalize(images)).argmax(1)

The modules have the parameters, names and results of those in C++: convnet, mlp and resnet, which
classify images, and transformer and gpt, which predict the next character of a text.
docs/training.md describes them and their configuration.
"""

import collections
import json
import os
import pathlib
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from gradwire import checkpoint

__all__ = ["load_model", "make_model", "normalize"]

Path = str | os.PathLike[str]
Description = dict[str, Any]

_SIDE = 28  # Height and width of images.
_CLASSES = 10
_MEAN, _DEVIATION = 0.2860, 0.3530  # Statistics of Fashion-MNIST's pixels, scaled to 0 .. 1.
_CHARACTERS = 256
_POSITIONS = "embedding.position"


def load_model(path: Path) -> nn.Module:
    """Returns the trained model in evaluation mode. `path` is a file that `gradwire train` or
    `gradwire checkpoint` wrote, or a checkpoint, as in gradwire.checkpoint. Files need the package
    safetensors. Raises FileNotFoundError if nothing is there, and ValueError for a file of another
    program."""
    path = pathlib.Path(path)
    description, state = _read_checkpoint(path) if path.is_dir() else _read_file(path)
    if not isinstance(description, dict):
        raise ValueError(f"{path} does not describe a model; was it written by gradwire train?")
    positions = state.get(_POSITIONS)
    context = None if positions is None else len(positions)
    try:
        model = make_model(description, context)
        model.load_state_dict(state)
    except (RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"{path} does not hold its model {description}: {error}") from error
    return model.eval()


def normalize(images: torch.Tensor) -> torch.Tensor:
    """Maps images, N x 28 x 28 bytes from 0 to 255, to the model's inputs, N x 1 x 28 x 28, as
    `gradwire train` does for every data set."""
    return (images.unsqueeze(1) / 255 - _MEAN) / _DEVIATION


def make_model(description: Description, context: int | None = None) -> nn.Module:
    """Returns an untrained model, initialized as PyTorch initializes its modules. `description` is
    the configuration's "model"; `context`, its "data.context", is for texts. The model maps images,
    N x 1 x 28 x 28, to log-probabilities, N x 10; or characters, N x T bytes as int64 with T up to
    `context`, to log-probabilities of each next one, N x vocabulary x T. Raises ValueError for an
    unknown model or key."""
    kind = _IMAGE_MODELS if context is None else _TEXT_MODELS
    settings = dict(description)
    name = settings.pop("name", next(iter(kind)))
    if name not in kind:
        data = "images" if context is None else "texts"
        raise ValueError(f'there is no model "{name}" for {data}; there are {", ".join(kind)}')
    make, defaults = kind[name]
    if unknown := settings.keys() - defaults.keys():
        raise ValueError(f'model "{name}" has no {", ".join(sorted(unknown))}; '
                         f"it has {', '.join(defaults)}")
    if context is not None:
        settings["context"] = context
    return make(**{**defaults, **settings})


def _read_file(path: pathlib.Path) -> tuple[Any, dict[str, torch.Tensor]]:
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError as error:
        raise ImportError(f"{path} is a safetensors file: pip install safetensors") from error
    try:
        with safe_open(path, framework="pt") as file:
            description = json.loads((file.metadata() or {}).get("model", "null"))
            return description, {name: file.get_tensor(name) for name in file.keys()}
    except (SafetensorError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error


def _read_checkpoint(path: pathlib.Path) -> tuple[Any, dict[str, torch.Tensor]]:
    path = checkpoint.find(path)
    return checkpoint.load_manifest(path)["model"], checkpoint.load_state_dict(path)


def _sequence(*layers: tuple[str, nn.Module]) -> nn.Sequential:
    return nn.Sequential(collections.OrderedDict(layers))


def _classifier(inputs: int, hidden: int, dropout: float) -> list[tuple[str, nn.Module]]:
    return [("flatten", nn.Flatten()), ("hidden", nn.Linear(inputs, hidden)), ("relu", nn.ReLU()),
            ("dropout", nn.Dropout(dropout)), ("output", nn.Linear(hidden, _CLASSES)),
            ("log_softmax", nn.LogSoftmax(1))]


def _mlp(hidden: int, dropout: float) -> nn.Module:
    return _sequence(*_classifier(_SIDE * _SIDE, hidden, dropout))


def _convnet(channels: int, hidden: int, dropout: float) -> nn.Module:
    features = 2 * channels * (_SIDE // 4) ** 2
    return _sequence(
        ("conv1", nn.Conv2d(1, channels, 3, padding=1)), ("relu1", nn.ReLU()),
        ("pool1", nn.MaxPool2d(2)),
        ("conv2", nn.Conv2d(channels, 2 * channels, 3, padding=1)), ("relu2", nn.ReLU()),
        ("pool2", nn.MaxPool2d(2)), *_classifier(features, hidden, dropout))


def _resnet(channels: int, blocks: int, groups: int) -> nn.Module:
    layers: list[tuple[str, nn.Module]] = [
        ("stem", nn.Conv2d(1, channels, 3, padding=1, bias=False)),
        ("stem_norm", nn.GroupNorm(groups, channels)), ("stem_relu", nn.ReLU())]
    inputs = channels
    for number in range(4 * blocks):
        stage, outputs = number // blocks, channels << number // blocks
        stride = 2 if stage > 0 and number % blocks == 0 else 1
        layers.append((f"block{number}", _ResidualBlock(inputs, outputs, stride, groups)))
        inputs = outputs
    return _sequence(*layers, ("pool", nn.AdaptiveAvgPool2d(1)), ("flatten", nn.Flatten()),
                     ("output", nn.Linear(inputs, _CLASSES)), ("log_softmax", nn.LogSoftmax(1)))


class _ResidualBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int, groups: int):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.GroupNorm(groups, outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.GroupNorm(groups, outputs)
        self.shortcut = self.shortcut_norm = None
        if inputs != outputs or stride != 1:
            self.shortcut = nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False)
            self.shortcut_norm = nn.GroupNorm(groups, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        if self.shortcut is not None and self.shortcut_norm is not None:
            x = self.shortcut_norm(self.shortcut(x))
        return F.relu(y + x)


def _transformer(width: int, layers: int, heads: int, context: int) -> nn.Module:
    return _text_model(width, layers, heads, context, _CHARACTERS, 0, bias=False)


def _gpt(width: int, layers: int, heads: int, context: int, vocabulary: int, dropout: float,
         tie_word_embeddings: bool) -> nn.Module:
    model = _text_model(width, layers, heads, context, vocabulary, dropout, bias=True)
    if tie_word_embeddings:
        model.head.output.weight = model.embedding.character.weight
    return model


def _text_model(width: int, layers: int, heads: int, context: int, vocabulary: int, dropout: float,
                bias: bool) -> nn.Sequential:
    blocks = [(f"block{layer}", _DecoderBlock(width, heads, dropout, bias))
              for layer in range(layers)]
    return _sequence(("embedding", _Embedding(vocabulary, context, width, dropout)), *blocks,
                     ("head", _CharacterHead(width, vocabulary)))


class _Embedding(nn.Module):
    """Maps characters, N x T, to N x T x width."""

    def __init__(self, vocabulary: int, context: int, width: int, dropout: float):
        super().__init__()
        self.character = nn.Embedding(vocabulary, width)
        self.position = nn.Parameter(torch.randn(context, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, characters: torch.Tensor) -> torch.Tensor:
        x: torch.Tensor = self.character(characters) + self.position[:characters.shape[1]]
        return self.dropout(x)


class _Attention(nn.Module):
    """Causal: each position attends to itself and to earlier ones."""

    def __init__(self, width: int, heads: int, bias: bool):
        super().__init__()
        self.heads = heads
        self.query_key_value = nn.Linear(width, 3 * width, bias=bias)
        self.output = nn.Linear(width, width, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        samples, length, width = x.shape
        split = self.query_key_value(x).view(samples, length, 3, self.heads, -1)
        query, key, value = split.permute(2, 0, 3, 1, 4).unbind(0)  # Each N x heads x T x part.
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.output(mixed.transpose(1, 2).reshape(samples, length, width))


class _DecoderBlock(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float, bias: bool):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = _Attention(width, heads, bias)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width, bias=bias)
        self.down = nn.Linear(4 * width, width, bias=bias)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x + self.dropout(self.attention(self.norm1(x)))
        return y + self.dropout(self.down(F.gelu(self.up(self.norm2(y)), approximate="tanh")))


class _CharacterHead(nn.Module):
    """Maps N x T x width to log-probabilities, N x vocabulary x T."""

    def __init__(self, width: int, vocabulary: int):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.output = nn.Linear(width, vocabulary, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.log_softmax(self.output(self.norm(x)), -1).transpose(1, 2)


# By kind, the default first: {name: (function, settings of the configuration with defaults)}.
_TRANSFORMER: Description = {"width": 64, "layers": 2, "heads": 4}
_IMAGE_MODELS: dict[str, tuple[Any, Description]] = {
    "convnet": (_convnet, {"channels": 16, "hidden": 128, "dropout": 0}),
    "mlp": (_mlp, {"hidden": 128, "dropout": 0}),
    "resnet": (_resnet, {"channels": 16, "blocks": 1, "groups": 8}),
}
_TEXT_MODELS: dict[str, tuple[Any, Description]] = {
    "transformer": (_transformer, _TRANSFORMER),
    "gpt": (_gpt, {**_TRANSFORMER, "vocabulary": _CHARACTERS, "dropout": 0,
                   "tie_word_embeddings": False}),
}
