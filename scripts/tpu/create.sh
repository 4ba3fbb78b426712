#!/usr/bin/env bash
# Asks for a Cloud TPU slice as a queued resource and waits until it is there.
#
#   bash scripts/tpu/create.sh --name NAME --type v5litepod-16 [--zone ZONE] [--project PROJECT] [--spot]
#
#   --name NAME          of the slice and of its request
#   --type TYPE          how many chips of what: v5litepod-8 is one host, v5litepod-16 four
#   --zone, --project    default: gcloud's own (gcloud config set compute/zone ZONE)
#   --runtime VERSION    software of the hosts; default: Google's for JAX on this type
#   --spot               cheaper, may be taken away at any time: run.sh goes on where it stopped
#   --reserved           from a reservation
#   --valid-for TIME     give up after so long in the queue, as 6h
#   --no-wait            return at once
#   --dry-run            print the commands, run nothing
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../launching.sh"

name="" type="" zone="" project="" runtime="" valid_for="" spot="" reserved="" no_wait=""
parse "name type zone project runtime valid-for" "spot reserved no-wait" "$@"
need name type
named "$name"
accelerator "$type"
[ -z "$spot$reserved" ] || [ "$spot" != "$reserved" ] || die "--spot and --reserved: give one of them"
if [ -z "$runtime" ]; then
  case "$type" in
    v5litepod-*) runtime=v2-alpha-tpuv5-lite ;;
    v5p-*) runtime=v2-alpha-tpuv5 ;;
    v6e-*) runtime=v2-alpha-tpuv6e ;;
    *) runtime=tpu-ubuntu2204-base ;;
  esac
fi
settle

request=(gcloud compute tpus queued-resources create "$name" --node-id="$name" "${place[@]}")
request+=(--accelerator-type="$type" --runtime-version="$runtime")
[ -z "$spot" ] || request+=(--spot)
[ -z "$reserved" ] || request+=(--reserved)
[ -z "$valid_for" ] || request+=(--valid-until-duration="$valid_for")
run "${request[@]}"
[ -z "$no_wait" ] || exit 0

state=(gcloud compute tpus queued-resources describe "$name" "${place[@]}" --format="value(state.state)")
if [ "$dry_run" = true ]; then
  run "${state[@]}"
  exit 0
fi
while true; do
  now="$("${state[@]}")"
  printf '%s: %s\n' "$name" "$now" >&2
  case "$now" in
    ACTIVE) exit 0 ;;
    FAILED | SUSPENDED | SUSPENDING | DELETING)
      printf 'create.sh: no slice; clear the request away with delete.sh --name %s\n' "$name" >&2
      exit 1
      ;;
  esac
  sleep 30
done
