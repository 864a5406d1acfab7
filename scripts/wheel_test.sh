#!/usr/bin/env bash
# Build the wheel, install it in a clean environment, and serve, play and evaluate one episode from it.
set -euo pipefail
cd "$(dirname "$0")/.."

scratch=$(mktemp -d)
server=
finish() {
  [ -z "$server" ] || kill "$server" 2>/dev/null || true
  rm -rf "$scratch"
}
trap finish EXIT

.venv/bin/python -m build --wheel --no-isolation --outdir "$scratch/dist" . >/dev/null
wheel=$(echo "$scratch"/dist/sojourn-*.whl)
.venv/bin/python -m venv "$scratch/venv"
pip=("$scratch/venv/bin/python" -m pip --disable-pip-version-check install --quiet -c constraints.txt)
constraints=$(realpath constraints.txt)

# The base install serves and plays without torch, away from the checkout.
"${pip[@]}" "$wheel"
cd "$scratch"
export PATH="$scratch/venv/bin:$PATH"
if python -c 'import torch' 2>/dev/null; then
  echo "the base install pulled torch" >&2
  exit 1
fi
sojourn --version
sojourn --help >/dev/null
sojourn serve textcraft babyai --port 0 --ready-file ready &
server=$!
for _ in $(seq 150); do
  [ -s ready ] && break
  kill -0 "$server"
  sleep 0.2
done
url=$(cat ready)
sojourn rollout --oracle --env textcraft --env-url "$url" --episodes 1 --out played

# With the train extra the shipped model plays, and an evaluation says how well.
pip[-1]=$constraints
"${pip[@]}" "$(grep '^torch==' "$constraints")"
"${pip[@]}" "$wheel[train]"
sojourn eval --model sojourn-tiny --env babyai --env-url "$url" --episodes 1 --json
