#!/usr/bin/env bash
# Are the parts of the load tests in working order? Engine, router and verifying generator, a few hundred requests of
# each kind, with one leg and with two, nothing measured; a small storm of withdrawals; and a small rollout. Seconds after a build of the tests.
set -euo pipefail
cd "$(dirname "$0")/.."

python3 -m compileall -q load-tests
python3 load-tests/soak_test.py
cargo build --quiet --bin tandem --example fake_engine --example loadgen --example drain --example rollout
target=${CARGO_TARGET_DIR:-target}/debug
router=
trap 'kill "$engine" $router 2>/dev/null || true' EXIT
"$target/examples/fake_engine" --listen 127.0.0.1:19700 --prefill 127.0.0.1:19703 &
engine=$!

# through WIRE ENGINES… [-- GENERATOR_FLAGS…]: a router in front of the engines, the load, the pairs the engine has seen.
through() {
    local wire=$1 engines=()
    shift
    while [ $# -gt 0 ] && [ "$1" != -- ]; do engines+=("$1") && shift; done
    [ $# -eq 0 ] || shift
    "$target/tandem" router --listen 127.0.0.1:19701 --admin-listen 127.0.0.1:19702 --shutdown-delay 0 \
        --access-log off "${engines[@]}" &
    router=$!
    for _ in $(seq 100); do
        (exec 3<>/dev/tcp/127.0.0.1/19701) 2>/dev/null && break
        sleep 0.1
    done
    "$target/examples/loadgen" --target 127.0.0.1:19701 --connections 8 --requests 400 "$@"
    "$target/examples/loadgen" --target 127.0.0.1:19701 --connections 8 --requests 80 --events 50 "$@"
    kill -TERM "$router"
    wait "$router"
    router=
    python3 - "$wire" <<'END'
import json, sys, urllib.request
legs = json.load(urllib.request.urlopen("http://127.0.0.1:19700/load-report"))
expected = {"one_leg": 0, "sglang": 0, "vllm": 0, "breaches": {}, "open": 0}
if sys.argv[1] != "header":
    expected[sys.argv[1]] = 480
assert legs == expected, legs
END
}

prefill=http://127.0.0.1:19703 decode=http://127.0.0.1:19700
through header --worker "$decode"
through one_leg --worker "$decode" -- --pd
through sglang --engine sglang --prefill "$prefill,bootstrap=19703" --decode "$decode" -- --pd
through vllm --engine vllm --prefill "$prefill" --decode "$decode" -- --pd
"$target/examples/drain" --requests 3000
roll=("$target/examples/rollout" --rate 60 --events 10 --seconds 1 --pause 100 --decodes 4)
"${roll[@]}" --engine sglang
# Without tokens pairs are mixed: a judge that does not see that sees nothing.
said=$("${roll[@]}" --engine vllm --blind 2>&1 >/dev/null) && status=0 || status=$?
if [ "$status" -ne 1 ] || [[ $said != *"cross-cohort pairs: "* ]]; then
    echo "smoke: cross-cohort pairs were not seen: $status, $said" >&2
    exit 1
fi
