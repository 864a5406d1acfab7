#!/usr/bin/env bash
# Build the wheel, install it in a clean environment, and serve, play and evaluate one episode from it.
set -euo pipefail
cd "$(dirname "$0")/.."

constraints=$(realpath constraints.txt)
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
export PATH="$scratch/venv/bin:$PATH" PYTHONNOUSERSITE=1
install() {
  python -m pip --disable-pip-version-check install --quiet -c "$constraints" "$@"
}
# Away from the checkout, so that nothing is imported from there.
cd "$scratch"

install "$wheel"
if python -c 'import torch' 2>/dev/null; then
  echo "the base install pulled torch" >&2
  exit 1
fi
sojourn --version
sojourn --help >/dev/null
sojourn serve textcraft babyai --port 0 --ready-file ready &
server=$!
for _ in $(seq 300); do
  [ -s ready ] && break
  kill -0 "$server"
  sleep 0.1
done
url=$(cat ready)

echo "playing an episode of the oracle, without torch"
python - "$url" <<'PY'
import asyncio
import sys

from sojourn.client.session import EnvClient


async def play(url: str) -> None:
    async with EnvClient(url) as client:
        task = (await client.tasks("textcraft", "test", limit=1)).tasks[0].task
        async with await client.create("textcraft", task) as session:
            for action in (await session.solution()).actions:
                result = await session.step(action)
            assert result.info["success"], result
            print(f"{task}: {result.observation}")


asyncio.run(play(sys.argv[1]))
PY

echo "evaluating an episode of the shipped model"
install "$(grep '^torch==' "$constraints")"
install "$wheel[train]"
sojourn eval --model sojourn-tiny --env babyai --family UnlockLocal --env-url "$url" --episodes 1
