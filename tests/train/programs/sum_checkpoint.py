"""Prints each tensor of a checkpoint with the sum of its squares; each must have Adam's moments."""

import sys

import gradwire.checkpoint as checkpoint

moments = checkpoint.load_optimizer_states(sys.argv[1])
for name, tensor in checkpoint.load_state_dict(sys.argv[1]).items():
    assert moments[name]["exp_avg"].shape == tensor.shape, name
    print(name, tensor.double().square().sum().item())
