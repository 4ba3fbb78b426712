# shellcheck shell=bash
# Sourced by scripts/tpu and scripts/slurm: flags, checks, and commands that --dry-run prints instead of running.
# Works with the bash 3.2 of macOS: no associative arrays, no expansion of empty arrays. Variables that parse and
# need touch belong to the script that calls: their own begin with p_ and n_.

# shellcheck disable=SC2034 # for the scripts
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
dry_run=false
rest=() # what stood behind --
envs=() # every --env KEY=VALUE

# die MESSAGE: bad input.
die() {
  printf '%s: %s\n' "${0##*/}" "$1" >&2
  exit 2
}

# usage: the comment at the head of the script, without its first line.
usage() { sed -n '2,/^set -/{/^#/{s/^# \{0,1\}//;p;};}' "$0"; }

# parse VALUED SWITCHES ARGUMENT...: sets a variable for every flag (--valid-for: valid_for), `rest` and `envs`.
# VALUED and SWITCHES are names in one string; --dry-run and --help are known everywhere.
parse() {
  local p_valued=" $1 " p_switches=" dry-run $2 " p_flag p_name
  shift 2
  while [ $# -gt 0 ]; do
    p_flag="${1%%=*}"
    p_name="${p_flag#--}"
    case "$1" in
      --)
        shift
        if [ $# -gt 0 ]; then rest=("$@"); fi
        return
        ;;
      -h | --help)
        usage
        exit 0
        ;;
      --?*) ;;
      *) die "'$1' is no flag; what is to be run stands behind --" ;;
    esac
    if [[ "$p_switches" == *" $p_name "* ]]; then
      [ "$1" = "$p_flag" ] || die "$p_flag takes no value"
      printf -v "${p_name//-/_}" '%s' true
      shift
    elif [[ "$p_valued" == *" $p_name "* ]]; then
      if [ "$1" = "$p_flag" ]; then
        [ $# -ge 2 ] || die "$p_flag: its value is missing"
        set -- "$1=$2" "${@:3}"
      fi
      keep "$p_flag" "$p_name" "${1#*=}"
      shift
    else
      die "$p_flag: unknown; --help lists the flags"
    fi
  done
}

# keep FLAG NAME VALUE
keep() {
  [ -n "$3" ] || die "$1: its value is empty"
  if [ "$2" = env ]; then
    [[ "$3" =~ ^[A-Za-z_][A-Za-z0-9_]*= ]] || die "--env: '$3' is not of the form KEY=VALUE"
    envs+=("$3")
  else
    printf -v "${2//-/_}" '%s' "$3"
  fi
}

# need NAME...: flags that must have been given.
need() {
  local n_flag n_variable
  for n_flag in "$@"; do
    n_variable="${n_flag//-/_}"
    [ -n "${!n_variable}" ] || die "--$n_flag: missing; --help says what it is"
  done
}

# matches FLAG VALUE PATTERN WHAT
matches() { [[ "$2" =~ ^($3)$ ]] || die "$1: '$2' is not $4"; }

# whole FLAG VALUE: a number of things.
whole() { matches "$1" "$2" '[1-9][0-9]*' "a whole number, 1 or more"; }

# Commands whose processes can meet; checks that `rest` is one, and prints nothing.
our_command() {
  [ ${#rest[@]} -gt 0 ] || die "nothing to run: -- sweep CONFIG output=runs/NAME, for example"
  case "${rest[0]}" in
    evaluate | sweep | reproduce | generate) ;;
    *) die "'${rest[0]}' is not one of evaluate, sweep, reproduce, generate" ;;
  esac
}

# quoted WORD: as a shell reads it.
quoted() {
  if [[ "$1" =~ ^[A-Za-z0-9_@%+=:,./~-]+$ ]]; then
    printf '%s' "$1"
  else
    printf "'%s'" "${1//\'/\'\\\'\'}"
  fi
}

# line WORD...: a command as it would be typed.
line() {
  local word between=""
  for word in "$@"; do
    printf '%s' "$between"
    quoted "$word"
    between=" "
  done
}

# run COMMAND...: runs it, told on stderr; under --dry-run prints it and runs nothing.
run() {
  if [ "$dry_run" = true ]; then
    printf '%s\n' "$(line "$@")"
  else
    printf '+ %s\n' "$(line "$@")" >&2
    "$@"
  fi
}

# tool NAME WHERE: must be installed, unless nothing is to run.
tool() {
  [ "$dry_run" = true ] || command -v "$1" >/dev/null || die "$1 is not installed: $2"
}

GCLOUD="see https://cloud.google.com/sdk/docs/install"

# settle: zone and project from the flags or from gcloud's own configuration, which also a dry run reads.
settle() {
  tool gcloud "$GCLOUD"
  [ -n "$project" ] || project="$(from_gcloud project project)"
  [ -n "$zone" ] || zone="$(from_gcloud compute/zone zone)"
  matches --zone "$zone" '[a-z]+-[a-z]+[0-9]+-[a-z]' "a zone, as us-central1-a (us-central1 would be a region)"
  matches --project "$project" '([a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]' "the id of a project (not its name)"
  # shellcheck disable=SC2034 # for the scripts
  place=(--zone="$zone" --project="$project")
}

# from_gcloud PROPERTY FLAG
from_gcloud() {
  local found=""
  if command -v gcloud >/dev/null; then found="$(gcloud config get-value "$1" 2>/dev/null || true)"; fi
  if [ -z "$found" ] || [ "$found" = "(unset)" ]; then
    die "--$2: missing, and gcloud has no default: give it, or gcloud config set $1 VALUE"
  fi
  printf '%s' "$found"
}

# named VALUE: a TPU, a queued resource or a workload.
named() { matches --name "$1" '[a-z]([a-z0-9-]{0,38}[a-z0-9])?' "of a-z, 0-9 and -, begun by a letter, 40 at most"; }

# accelerator VALUE: as Google names it.
accelerator() {
  case "$1" in
    v5e-*) die "--type: '$1': a slice of v5e is called v5litepod-${1#v5e-}" ;;
  esac
  matches --type "$1" '(v[234]|v5p|v6e|v5litepod)-[0-9]+' "a slice, as v5litepod-8, v5p-16 or v6e-8"
}
