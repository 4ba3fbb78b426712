#!/usr/bin/env bash
# Deletes a slice and its request, and with them what lies on its hosts: collect.sh first.
#
#   bash scripts/tpu/delete.sh --name NAME [--zone ZONE] [--project PROJECT] [--yes]
#
#   --name NAME          of the slice
#   --zone, --project    default: gcloud's own
#   --yes                do not ask
#   --dry-run            print the command, run nothing
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../launching.sh"

name="" zone="" project="" yes=""
parse "name zone project" "yes" "$@"
need name
named "$name"
settle
if [ "$dry_run" = false ] && [ -z "$yes" ]; then
  printf 'Delete %s in %s, project %s, with all that lies on it? Its name again: ' "$name" "$zone" "$project" >&2
  read -r again || again=""
  [ "$again" = "$name" ] || die "'$again' is not '$name': nothing is deleted"
fi
run gcloud compute tpus queued-resources delete "$name" --force --quiet "${place[@]}"
