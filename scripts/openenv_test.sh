#!/usr/bin/env bash
# Let the openenv package's own client and validator meet our OpenEnv dialect; the package lives in an environment of its
# own, for what it needs (gradio, fastmcp, ...) has no place beside ours.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=.venv/openenv
scratch=$(mktemp -d)
server=
finish() {
  [ -z "$server" ] || kill "$server" 2>/dev/null || true
  rm -rf "$scratch"
}
trap finish EXIT

if [ ! -x "$venv/bin/openenv" ]; then
  .venv/bin/python -m venv "$venv"
  "$venv/bin/python" -m pip --disable-pip-version-check install --quiet 'openenv==0.10.0'
fi

.venv/bin/sojourn serve babyai textcraft --workers 2 --port 0 --ready-file "$scratch/ready" &
server=$!
for _ in $(seq 300); do
  [ -s "$scratch/ready" ] && break
  kill -0 "$server"
  sleep 0.1
done
url=$(cat "$scratch/ready")/openenv/babyai

"$venv/bin/python" scripts/openenv_client.py "$url"
"$venv/bin/openenv" validate --url "$url"
