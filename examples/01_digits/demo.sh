#!/bin/sh
# Starts a registry and one executor as processes, of the CPU or of the device that is named second, trains on them, shows what they offer, and stops both.
set -eu
build=${1:-build}
device=${2:-cpu}
OPWIRE_RUNTIME_DIR=$(mktemp -d)
export OPWIRE_RUNTIME_DIR
started=""
finish() {
  for pid in $started; do  # the executor first, so that it can say goodbye
    kill "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
  done
  rm -rf "$OPWIRE_RUNTIME_DIR"
}
trap finish EXIT INT TERM

"$build/bin/opwire-registry" --log-level warning &
started="$!"
"$build/bin/opwire-executor" --device "$device" --log-level warning &
started="$! $started"
tries=0
until "$build/bin/opwire" devices >/dev/null 2>&1; do
  tries=$((tries + 1))
  [ "$tries" -lt 100 ] || { "$build/bin/opwire" devices; exit 1; }
  sleep 0.1
done
"$build/bin/opwire" devices
echo
"$build/bin/digits" --save "$build/mlp.opw"
echo
echo "the ops of this executor:"
"$build/bin/opwire" ops
echo
finish
trap - EXIT
echo "stopped the executor and the registry"
