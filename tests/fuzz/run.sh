#!/bin/sh
# Fuzzes for a bounded time: tests/fuzz/run.sh SECONDS [TARGET]   (all targets in turn without TARGET)
#
# Stable toolchain: the coverage instrumentation that libFuzzer steers by is an LLVM pass, asked for by flags; no
# cargo-fuzz. New inputs go to target/corpus, crashes to artifacts; what is worth keeping is moved to corpus/TARGET by hand.
set -eu
seconds=${1:?usage: run.sh SECONDS [TARGET]}
cd "$(dirname "$0")"
targets=${2:-$(cd fuzz_targets && ls ./*.rs | sed 's|^\./||; s|\.rs$||')}
host=$(rustc -vV | sed -n 's/^host: //p')

# --target keeps the flags away from build scripts and macros.
export RUSTFLAGS="-Cpasses=sancov-module \
  -Cllvm-args=-sanitizer-coverage-level=4 \
  -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
  -Cllvm-args=-sanitizer-coverage-pc-table \
  -Cllvm-args=-sanitizer-coverage-trace-compares \
  --cfg fuzzing"

# One build for all of them.
set --
for target in $targets; do set -- "$@" --bin "$target"; done
cargo build --quiet --locked --release --target "$host" "$@"

for target in $targets; do
  mkdir -p "target/corpus/$target" artifacts
  dict=
  if [ -f "$target.dict" ]; then dict="-dict=$target.dict"; fi
  # The limits make slow and greedy inputs failures too. What it prints is shown when it fails.
  log="target/$target.log"
  "./target/$host/release/$target" "target/corpus/$target" "corpus/$target" \
    -max_total_time="$seconds" -timeout=5 -rss_limit_mb=1024 -max_len=4096 -print_final_stats=1 $dict \
    -artifact_prefix="artifacts/$target-" >"$log" 2>&1 || { tail -n 60 "$log"; exit 1; }
  echo "$target: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs in ${seconds} s, none fails"
done
