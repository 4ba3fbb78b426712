#!/usr/bin/env bash
# Everything that must pass, with its own set-up: lint, then all tests, the slow ones included.
# Arguments go to pytest: bash scripts/test.sh tests/test_rules.py
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"
cd "$root"

pip() { "$bin/python" -m pip install --quiet --disable-pip-version-check "$@"; }
pip -e ".[plot,gin,test]"
# Extras some tests need; without them those tests say why they are skipped. Parity waits for torch, since asking
# for the extra alone would bring a CUDA build of several gigabytes.
pip -e ".[data]" || echo "notice: the data extra did not install; tests of seqio tasks and training will be skipped"
pip -e ".[tasks]" || echo "notice: the tasks extra did not install; tests of ROUGE and HumanEval will be skipped"
if pip torch==2.13.0; then
  pip -e ".[parity]" || echo "notice: the parity extra did not install; parity tests will be skipped"
else
  echo "notice: torch did not install; parity tests will be skipped"
fi

"$bin/ruff" check .
# One process a core, each file's tests in one of them: compiling, most of the time, uses one core.
"$bin/python" -m pytest --numprocesses auto --dist loadfile "$@"
