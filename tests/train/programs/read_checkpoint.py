"""usage: read_checkpoint.py FOLDER: compares FOLDER/checkpoints, as Python reads it, with
FOLDER/expected.safetensors; so too FOLDER/one.safetensors, the consolidated file."""

import pathlib
import sys

import torch
from gradwire import checkpoint
from safetensors.torch import load_file


def small_model():
    """The model of checkpoint_test.cpp."""
    frozen = torch.nn.Linear(4, 4)
    frozen.requires_grad_(False)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Flatten(),
        torch.nn.Linear(4 * 36, 40), torch.nn.ReLU(), torch.nn.Linear(40, 4), frozen)


def main(folder):
    expected = load_file(folder / "expected.safetensors")
    consolidated = load_file(folder / "one.safetensors")
    assert set(consolidated) == set(expected)
    assert all(torch.equal(consolidated[name], expected[name]) for name in expected)

    state = checkpoint.load_state_dict(folder)
    model = small_model()
    model.load_state_dict(state, strict=True)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, expected[name]), name

    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(trained, lr=0.01, amsgrad=True)
    optimizer.load_state_dict(checkpoint.load_optimizer_state_dict(folder, model, optimizer))
    names = [name for name, p in model.named_parameters() if p.requires_grad]
    for name, parameter in zip(names, trained):
        found = optimizer.state[parameter]
        assert found["step"].item() == 3
        for key in ("exp_avg", "exp_avg_sq", "max_exp_avg_sq"):
            assert torch.equal(found[key], expected[f"optimizer.{key}.{name}"]), (key, name)
    for parameter in trained:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    assert checkpoint.load_manifest(folder)["step"] == 3
    print("all right")


main(pathlib.Path(sys.argv[1]))
