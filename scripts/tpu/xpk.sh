#!/usr/bin/env bash
# Runs one command on a TPU slice of a GKE cluster through xpk (pip install xpk), from this checkout.
#
#   bash scripts/tpu/xpk.sh --name NAME --cluster CLUSTER --type v5litepod-16 --storage STORAGE -- sweep CONFIG \
#     output=/mnt/runs/NAME
#
#   --name NAME          of the workload
#   --cluster CLUSTER    made by xpk cluster create
#   --type TYPE          the slice, as v5litepod-16
#   --storage STORAGE    a volume that outlives the pods (xpk storage create or attach): output= must lie on it,
#                        or a restarted pod begins anew
#   --slices N           default 1
#   --image IMAGE        default python:3.12; this checkout is copied into it
#   --extras A,B         of this package, as data or tasks
#   --env KEY=VALUE      for the command; may be repeated
#   --restarts N         how often a run that lost a pod is started again, default 3
#   --zone, --project    default: gcloud's own
#   --dry-run            print the command, run nothing
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../launching.sh"

name="" cluster="" type="" storage="" slices=1 image=python:3.12 extras="" restarts=3 zone="" project=""
parse "name cluster type storage slices image extras env restarts zone project" "" "$@"
need name cluster type storage
named "$name"
accelerator "$type"
whole --slices "$slices"
matches --restarts "$restarts" '[0-9]+' "a whole number"
[ -z "$extras" ] || matches --extras "$extras" '[a-z0-9]+(,[a-z0-9]+)*' "names of extras with commas between"
our_command
tool xpk "pip install xpk, in an environment of its own"
settle

words=(spec-cascades "${rest[0]}" --distributed auto)
[ ${#rest[@]} -eq 1 ] || words+=("${rest[@]:1}")
inside="pip install --quiet -e '.${extras:+[$extras]}' 'jax[tpu]' && $(line "${words[@]}")"
request=(xpk workload create --workload="$name" --cluster="$cluster" --tpu-type="$type" --num-slices="$slices")
request+=("${place[@]}" --storage="$storage" --base-docker-image="$image" --script-dir="$root")
# 75: another process of the run is gone.
request+=(--max-restarts="$restarts" --restart-on-exit-codes=75)
for pair in ${envs[@]+"${envs[@]}"}; do request+=(--env="$pair"); done
run "${request[@]}" --command="$inside"
