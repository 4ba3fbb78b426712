# Sourced by the other scripts: a Python environment, and `root`, the folder of the project.
# The active environment is used if there is one, else .venv in the project, made when absent.
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
if [ -z "${VIRTUAL_ENV:-}" ]; then
  if [ ! -x "$root/.venv/bin/python" ]; then
    python3 -c 'import sys; sys.exit("Python 3.11 or newer is needed, this is " + sys.version) if sys.version_info < (3, 11) else None'
    python3 -m venv "$root/.venv"
  fi
  VIRTUAL_ENV="$root/.venv"
fi
bin="$VIRTUAL_ENV/bin"
