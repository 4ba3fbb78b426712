#!/usr/bin/env bash
# The scores in spec_cascades/embedded/README.md: bash scripts/model_card.sh DATA [PLAIN_DRAFTER]
# DATA holds tatoeba_en_de_test.tsv and multi30k_test2016.{en,de}; PLAIN_DRAFTER is a drafter trained without a
# teacher (configs/train/en-de-drafter-plain.yaml). Records end up in docs/records/card/.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"
data=$(cd "${1:?usage: model_card.sh DATA [PLAIN_DRAFTER]}" && pwd)
plain=${2:+$(realpath --relative-to="$root" "$2")} # so here, too
cd "$root"
mkdir -p runs/card docs/records/card
ln -sfn "$data" runs/card/data # so that the records name no path of this machine
paste "$data/multi30k_test2016.en" "$data/multi30k_test2016.de" >runs/card/multi30k.tsv

score() { # NAME OVERRIDE...
  local name=$1
  shift
  "$bin/spec-cascades" sweep configs/card/pair.yaml "output=runs/card/$name" "$@" >/dev/null
  cp "runs/card/$name/records.jsonl" "docs/records/card/$name.jsonl"
  echo "== $name" && "$bin/spec-cascades" report "runs/card/$name"
}

score tatoeba task.path=runs/card/data/tatoeba_en_de_test.tsv
score tatoeba-joined task.path=runs/card/data/tatoeba_en_de_test.tsv task.join=3
score multi30k task.path=runs/card/multi30k.tsv
if [ -n "$plain" ]; then
  score tatoeba-plain task.path=runs/card/data/tatoeba_en_de_test.tsv "models.drafter=$plain"
fi
