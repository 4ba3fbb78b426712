#!/usr/bin/env bash
# From a fresh checkout to the quality-latency table and plot of the embedded pair. Needs Python 3.11 and pip's index.
# Arguments are overrides of configs/quickstart.yaml: bash scripts/quickstart.sh task.limit=20 output=runs/small
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"
cd "$root"

echo "Installing into $VIRTUAL_ENV ..."
"$bin/python" -m pip install --quiet --disable-pip-version-check -e ".[plot]"

out=runs/quickstart
for argument in "$@"; do
  case "$argument" in output=*) out="${argument#output=}" ;; esac
done
"$bin/spec-cascades" sweep configs/quickstart.yaml "$@" >/dev/null
"$bin/spec-cascades" report "$out"
