#!/usr/bin/env bash
# Runs a router on this machine: load-tests/try.sh [ENGINE_URL…]
#
# In front of the engines named, or of the load tests' own engine: no GPU, no model, the same few words for every
# question. The router answers on 127.0.0.1:8080, its probes and metrics on 127.0.0.1:9090. Ctrl-C stops both.
set -euo pipefail
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-target}/quick
if [ $# -gt 0 ]; then
    cargo build --profile quick --bin tandem
else
    cargo build --profile quick --bin tandem --example fake_engine
    "$target/examples/fake_engine" --listen 127.0.0.1:8000 &
    engine=$!
    trap 'kill "$engine" 2>/dev/null || true' EXIT
    set -- http://127.0.0.1:8000
fi
# Ctrl-C reaches the router by itself, a TERM does not; either way the script waits for it to leave in its own time.
trap ':' INT
trap 'kill -TERM "$router"' TERM
"$target/tandem" router --listen 127.0.0.1:8080 --admin-listen 127.0.0.1:9090 --shutdown-delay 0 \
    "${@/#/--worker=}" &
router=$!
while kill -0 "$router" 2>/dev/null; do
    wait "$router" || true
done
