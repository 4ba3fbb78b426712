#!/usr/bin/env bash
# Copies a run folder from a slice to this machine: of a finished run from host 0, which has the whole of it.
#
#   bash scripts/tpu/collect.sh --name NAME [--zone ZONE] [--project PROJECT] --from runs/NAME --to DIR
#
#   --name NAME          of the slice
#   --zone, --project    default: gcloud's own
#   --from FOLDER        in ~/spec-cascades on the hosts, as the run's output=
#   --to DIR             here, made if absent
#   --hosts N            of a run that is not finished: what each of N hosts has, to DIR/host-0 and so on
#   --internal-ip        reach the hosts by their internal addresses
#   --dry-run            print the commands, run nothing
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../launching.sh"

name="" zone="" project="" from="" to="" hosts="" internal_ip=""
parse "name zone project from to hosts" "internal-ip" "$@"
need name from to
named "$name"
[ -z "$hosts" ] || whole --hosts "$hosts"
case "$from" in
  /* | *..*) die "--from: '$from' is not a folder inside spec-cascades, as runs/NAME" ;;
esac
settle
[ -z "$internal_ip" ] || place+=(--internal-ip)

# copy HOST FOLDER
copy() {
  run mkdir -p "$2"
  run gcloud compute tpus tpu-vm scp --recurse "$name:spec-cascades/$from" "$2" --worker="$1" "${place[@]}"
}

if [ -z "$hosts" ]; then
  copy 0 "$to"
else
  for ((host = 0; host < hosts; host++)); do copy "$host" "$to/host-$host"; done
fi
