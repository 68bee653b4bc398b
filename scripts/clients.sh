#!/bin/bash
# Runs Hugging Face's accelerate and Trainer, and Lightning, over a build folder's Python package.
# First installs them into a virtual environment in that folder, which uses the PyTorch of .venv.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly clients=(accelerate transformers lightning)
readonly versions="accelerate==1.15.0 transformers==5.24.0 lightning==2.6.6"

fail() { printf 'clients: %s\n' "$@" >&2; exit 1; }

site_of() { "$1" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }  # PYTHON

# The constraint keeps the PyTorch that gradwire was built for: pip would install one with CUDA.
install() {
  local torch
  torch=$(.venv/bin/python -c 'import importlib.metadata as m; print(m.version("torch"))')
  [[ $(cat "$venv/holds" 2>/dev/null) != "$versions torch==$torch" ]] || return 0
  echo "clients: installing $versions into $venv"
  rm -rf "$venv"
  .venv/bin/python -m venv "$venv"
  echo "import site; site.addsitedir('$(site_of .venv/bin/python)')" \
    >"$(site_of "$venv/bin/python")/gradwire-lent.pth"
  echo "torch==$torch" >"$venv/constraints"
  # shellcheck disable=SC2086
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -c "$venv/constraints" \
    $versions || fail "pip could not install $versions; its error message is above"
  echo "$versions torch==$torch" >"$venv/holds"
}

(($# == 1)) || fail "usage: scripts/clients.sh BUILD"
build=$(realpath "$1")
venv=$build/clients-venv
install
for client in "${clients[@]}"; do
  PYTHONPATH=$build/python PYTHONDONTWRITEBYTECODE=1 HF_HUB_OFFLINE=1 \
    "$venv/bin/python" tests/python/clients.py "$client" || fail "$client failed"
done
