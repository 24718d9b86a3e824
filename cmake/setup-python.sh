#!/bin/sh
# Makes a virtual environment with what the Python package is built and tested with: setup-python.sh VENV/bin/python
set -eu
# Checkers are pinned, so that a new version of theirs fails no checkout.
packages="nanobind scikit-build-core numpy ml_dtypes pytest mypy==2.4.1 ruff==0.17.6"
venv=$(dirname "$(dirname "$1")")
[ -x "$1" ] || python3 -m venv "$venv"
"$1" -c "import nanobind, scikit_build_core, numpy, ml_dtypes, pytest, mypy, ruff" 2>/dev/null && exit 0
echo "installing into $venv: $packages"
"$1" -m pip install -q --disable-pip-version-check $packages ||
  { echo "the packages of the Python part do not install; make PYTHON=off leaves it out" >&2; exit 1; }
