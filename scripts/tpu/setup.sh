#!/usr/bin/env bash
# Copies the last commit of this checkout to every host of a slice and installs it there, with jax for TPU.
#
#   bash scripts/tpu/setup.sh --name NAME [--zone ZONE] [--project PROJECT] [--extras data,tasks]
#
#   --name NAME          of the slice
#   --zone, --project    default: gcloud's own
#   --extras A,B         of this package, as data or tasks
#   --python VERSION     default 3.12; fetched by uv, since the hosts' own is older than this package needs
#   --internal-ip        reach the hosts by their internal addresses
#   --dry-run            print the commands, run nothing
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../launching.sh"

name="" zone="" project="" extras="" python=3.12 internal_ip=""
parse "name zone project extras python" "internal-ip" "$@"
need name
named "$name"
matches --python "$python" '3\.1[1-9]' "3.11 or newer"
[ -z "$extras" ] || matches --extras "$extras" '[a-z0-9]+(,[a-z0-9]+)*' "names of extras with commas between"
settle
[ -z "$internal_ip" ] || place+=(--internal-ip)
if [ "$dry_run" = false ] && [ -n "$(git -C "$root" status --porcelain)" ]; then
  printf 'setup.sh: notice: what is not committed stays here\n' >&2
fi

archive="${TMPDIR:-/tmp}/spec-cascades-$name.tar.gz"
unpack="rm -rf spec-cascades.new && mkdir spec-cascades.new && tar -xzf spec-cascades.tar.gz -C spec-cascades.new"
# Runs and the environment of an earlier setup stay.
swap="mkdir -p spec-cascades && cp -a spec-cascades.new/. spec-cascades && rm -rf spec-cascades.new && cd spec-cascades"
environment="python3 -m pip install --quiet --user uv && python3 -m uv venv --allow-existing --python $python .venv"
install="python3 -m uv pip install --quiet --python .venv/bin/python -e '.${extras:+[$extras]}' 'jax[tpu]'"
check=".venv/bin/spec-cascades --version"

run git -C "$root" archive --format=tar.gz --output="$archive" HEAD
run gcloud compute tpus tpu-vm scp "$archive" "$name:spec-cascades.tar.gz" --worker=all "${place[@]}"
run gcloud compute tpus tpu-vm ssh "$name" --worker=all "${place[@]}" \
  --command="set -e; $unpack && $swap && $environment && $install && $check"
