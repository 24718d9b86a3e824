#!/bin/sh
# Makes a virtual environment with what the Python package is built and tested with: setup-python.sh VENV/bin/python
set -eu
packages="nanobind scikit-build-core numpy ml_dtypes pytest mypy"
venv=$(dirname "$(dirname "$1")")
[ -x "$1" ] || python3 -m venv "$venv"
"$1" -c "import nanobind, scikit_build_core, numpy, ml_dtypes, pytest, mypy" 2>/dev/null && exit 0
echo "installing into $venv: $packages"
"$1" -m pip install -q --disable-pip-version-check $packages ||
  { echo "the packages of the Python part do not install; make PYTHON=off leaves it out" >&2; exit 1; }
