#!/usr/bin/env bash
# Are the parts of the load tests in working order? Engine, router and verifying generator, a few hundred requests of
# each kind, nothing measured. Seconds after a build of the tests.
set -euo pipefail
cd "$(dirname "$0")/.."

python3 -m compileall -q load-tests
cargo build --quiet --bin tandem --example fake_engine --example loadgen
target=${CARGO_TARGET_DIR:-target}/debug
"$target/examples/fake_engine" --listen 127.0.0.1:19700 &
engine=$!
"$target/tandem" router --listen 127.0.0.1:19701 --admin-listen 127.0.0.1:19702 --shutdown-delay 0 --access-log off \
    --worker http://127.0.0.1:19700 &
router=$!
trap 'kill "$engine" "$router" 2>/dev/null || true' EXIT
for _ in $(seq 100); do
    (exec 3<>/dev/tcp/127.0.0.1/19701) 2>/dev/null && break
    sleep 0.1
done
"$target/examples/loadgen" --target 127.0.0.1:19701 --connections 8 --requests 400
"$target/examples/loadgen" --target 127.0.0.1:19701 --connections 8 --requests 80 --events 50
kill -TERM "$router"
wait "$router"
