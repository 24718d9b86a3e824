#!/bin/sh
# Checks the types of the Python package, its stubs and the examples by mypy in strict mode: check-types.sh VENV/bin/python
set -eu
python=$(realpath -s "$1")
cd "$(dirname "$0")/.."
export MYPY_CACHE_DIR="$(dirname "$(dirname "$python")")/mypy-cache"
"$python" -m mypy --config-file pyproject.toml frontend/python/opwire
for example in examples/*/; do  # each is a program of its own, whose modules may have the names of another's
  set -- "$example"*.py
  [ -e "$1" ] || continue
  (cd "$example" && MYPYPATH=../../frontend/python "$python" -m mypy --config-file ../../pyproject.toml ./*.py)
done
