#!/usr/bin/env bash
# Runs one command on all hosts of a slice at once; the processes find each other. Again, after a preemption or
# a failure, the same command goes on where it stopped.
#
#   bash scripts/tpu/run.sh --name NAME [--zone ZONE] [--project PROJECT] -- sweep CONFIG output=runs/NAME
#
#   --name NAME          of the slice
#   --zone, --project    default: gcloud's own
#   --env KEY=VALUE      for the command; may be repeated
#   --detach             go on when this terminal is gone; what is printed goes to ~/spec-cascades/run.log
#   --internal-ip        reach the hosts by their internal addresses
#   --dry-run            print the command, run nothing
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../launching.sh"

name="" zone="" project="" detach="" internal_ip=""
parse "name zone project env" "detach internal-ip" "$@"
need name
named "$name"
our_command
settle
[ -z "$internal_ip" ] || place+=(--internal-ip)

words=(env JAX_COMPILATION_CACHE_DIR=.jax-cache)
[ ${#envs[@]} -eq 0 ] || words+=("${envs[@]}")
words+=(.venv/bin/spec-cascades "${rest[0]}" --distributed auto)
[ ${#rest[@]} -eq 1 ] || words+=("${rest[@]:1}")
remote="cd spec-cascades && $(line "${words[@]}")"
[ -z "$detach" ] || remote="cd spec-cascades && { nohup $(line "${words[@]}") >run.log 2>&1 </dev/null & }"
run gcloud compute tpus tpu-vm ssh "$name" --worker=all "${place[@]}" --command="$remote"
