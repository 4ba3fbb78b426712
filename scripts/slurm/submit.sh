#!/usr/bin/env bash
# Submits one command to SLURM, one process a GPU or a node; the processes find each other. Submitted again, or
# put back into the queue by SLURM, it goes on where it stopped.
#
#   bash scripts/slurm/submit.sh --nodes 2 --gpus 8 [--per gpu] -- sweep CONFIG output=runs/NAME
#
#   --nodes N            how many
#   --gpus G             GPUs of each node
#   --per gpu|node       a process for each GPU (default), or for all of a node's, as a mesh over them wants
#   --cpus N             CPUs of each process
#   --time LIMIT         as SLURM writes it, 12:00:00
#   --partition, --account, --qos, --constraint    as sbatch takes them
#   --job-name NAME      default spec-cascades
#   --log FILE           default spec-cascades-%j.log; the same file after a requeue
#   --env KEY=VALUE      for the command; may be repeated
#   --no-requeue         end where the job is preempted or a node fails
#   --dry-run            print the command, run nothing
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../launching.sh"

nodes="" gpus="" per=gpu cpus="" no_requeue=""
# shellcheck disable=SC2034 # read by their names below
time="" partition="" account="" qos="" constraint=""
job_name=spec-cascades log=spec-cascades-%j.log
parse "nodes gpus per cpus time partition account qos constraint job-name log env" "no-requeue" "$@"
need nodes gpus
whole --nodes "$nodes"
whole --gpus "$gpus"
[ -z "$cpus" ] || whole --cpus "$cpus"
matches --per "$per" 'gpu|node' "gpu or node"
[ -z "$time" ] || matches --time "$time" '[0-9]+(-[0-9]+)?(:[0-9]{2}){0,2}' "a time limit, as 12:00:00 or 2-00"
our_command
tool sbatch "this runs on a login node of a SLURM cluster"

tasks=1
# jax gives each process one GPU of its node unless told of more.
if [ "$per" = gpu ]; then
  tasks="$gpus"
elif [ "$gpus" -gt 1 ]; then
  envs+=("JAX_LOCAL_DEVICE_IDS=$(seq -s , 0 "$((gpus - 1))")")
fi
request=(sbatch --job-name="$job_name" --nodes="$nodes" --ntasks-per-node="$tasks" --gpus-per-node="$gpus")
request+=(--chdir="$root" --output="$log" --open-mode=append)
for flag in time partition account qos constraint; do
  [ -z "${!flag}" ] || request+=("--$flag=${!flag}")
done
[ -z "$cpus" ] || request+=(--cpus-per-task="$cpus")
if [ -z "$no_requeue" ]; then request+=(--requeue); else request+=(--no-requeue); fi
# Variables as arguments: --export would split their values at commas.
run "${request[@]}" "$root/scripts/slurm/run.sbatch" ${envs[@]+"${envs[@]}"} -- "${rest[@]}"
