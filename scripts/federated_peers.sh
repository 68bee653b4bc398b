#!/usr/bin/env bash
# Makes the environment FOLDER with Flower's simulation and pfl-research, for bench/federated.py.
# They see the PyTorch of .venv, and change nothing there.
#
# usage: federated_peers.sh FOLDER
set -euo pipefail

folder=${1:?usage: federated_peers.sh FOLDER}
.venv/bin/python -m venv "$folder"
site=$("$folder/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
torch=$(.venv/bin/python -c 'import pathlib, torch; print(pathlib.Path(torch.__file__).parents[1])')
echo "$torch" > "$site/of_gradwire.pth"
"$folder/bin/pip" install --quiet flwr==1.42 ray==2.55.1 pfl==0.6
