#!/usr/bin/env bash
# Runs every experiment of configs/embedded, keeps its records and figures in docs/records/embedded and fills the
# tables of docs/results.md. Resumable: the same command goes on where it stopped. Overrides go to every experiment,
# and then nothing is kept: bash scripts/reproduce_embedded.sh task.limit=4
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"
cd "$root"

# figure2 is drawn from table2's folder.
for name in table2 figure2 figure3 appendix_gamma3 appendix_gamma7 appendix_temperature0 appendix_temperature01 \
  appendix_temperature05 appendix_top_p appendix_gemma_9b; do
  "$bin/python" -m spec_cascades.cli reproduce "configs/embedded/$name.yaml" "$@"
done
[ $# -eq 0 ] || exit 0
for run in runs/embedded/*/; do
  kept="docs/records/embedded/$(basename "$run")"
  mkdir -p "$kept"
  cp "$run"/*.jsonl "$kept"
  cp "$run"/*.png "$kept" 2>/dev/null || true
done
"$bin/python" scripts/readme.py
