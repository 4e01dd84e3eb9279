#!/usr/bin/env bash
# Are the parts of the load tests in working order? Engine, router and verifying generator, a few hundred requests of
# each kind, with one leg and with two, nothing measured; a small storm of withdrawals; and a small rollout. Seconds after a build of the tests.
set -euo pipefail
cd "$(dirname "$0")/.."

python3 -m compileall -q load-tests
python3 -m unittest discover -q -s load-tests/relay -t load-tests
python3 load-tests/soak_test.py
cargo build --quiet --bin tandem --example fake_engine --example loadgen --example drain --example rollout
target=${CARGO_TARGET_DIR:-target}/debug
router= schedule=
trap 'kill "$engine" $router 2>/dev/null || true; rm -f "$schedule"' EXIT
"$target/examples/fake_engine" --listen 127.0.0.1:19700 --listen 127.0.0.1:19704 \
    --prefill 127.0.0.1:19703 --prefill 127.0.0.1:19705 &
engine=$!
schedule=$(mktemp)
python3 - >"$schedule" <<'END'
import sys
sys.path.insert(0, "load-tests")
from relay import traces
# Both shapes at 1,000 requests a second, one behind the other.
azure, mooncake = (traces.draw(name, 1000, 0.05) for name in ("azure", "mooncake"))
print(traces.schedule([*azure, *((at + 0.1, *lengths) for at, *lengths in mooncake)]), end="")
END

# load GENERATOR_FLAGS…: some of each kind.
load() {
    "$target/examples/loadgen" --connections 8 --requests 400 "$@"
    "$target/examples/loadgen" --connections 8 --requests 80 --events 50 "$@"
    "$target/examples/loadgen" --connections 4 --requests 20 --body-bytes 1048576 "$@"
}

# seen WIRE ENGINES [REQUESTS]: the engine saw so many pairs of that kind, at so many prefills and decodes, and nothing else.
seen() {
    python3 - "$1" "$2" "${3:-500}" <<'END'
import json, sys, urllib.request
legs = json.load(urllib.request.urlopen("http://127.0.0.1:19700/load-report"))
wire, engines, requests = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
expected = {"one_leg": 0, "sglang": 0, "vllm": 0, "breaches": {}, "open": 0, "prefills": 0, "decodes": 0}
if wire != "header":
    expected |= {wire: requests, "prefills": engines if wire != "one_leg" else 0, "decodes": engines}
assert legs == expected, (legs, expected)
END
}

# through WIRE ENGINES ROUTER_FLAGS… [-- GENERATOR_FLAGS…]: a router in front of so many prefills and decodes.
through() {
    local wire=$1 engines=$2 flags=()
    shift 2
    while [ $# -gt 0 ] && [ "$1" != -- ]; do flags+=("$1") && shift; done
    [ $# -eq 0 ] || shift
    "$target/tandem" router --listen 127.0.0.1:19701 --admin-listen 127.0.0.1:19702 --shutdown-delay 0 \
        --access-log off "${flags[@]}" &
    router=$!
    for _ in $(seq 100); do
        (exec 3<>/dev/tcp/127.0.0.1/19701) 2>/dev/null && break
        sleep 0.1
    done
    load --target 127.0.0.1:19701 "$@"
    seen "$wire" "$engines"
    if [ "$wire" != header ]; then
        "$target/examples/loadgen" --connections 64 --target 127.0.0.1:19701 --schedule "$schedule" --gap-us 1000 "$@"
        seen "$wire" "$engines" "$(wc -l <"$schedule")"
    fi
    kill -TERM "$router"
    wait "$router"
    router=
}

prefill=http://127.0.0.1:19703 decode=http://127.0.0.1:19700
through header 1 --worker "$decode"
through one_leg 1 --worker "$decode" -- --pd
through sglang 1 --engine sglang --prefill "$prefill,bootstrap=19703" --decode "$decode" -- --pd
through vllm 1 --engine vllm --prefill "$prefill" --decode "$decode" -- --pd
prefill2=http://127.0.0.1:19705 decode2=http://127.0.0.1:19704
through sglang 2 --engine sglang --prefill "$prefill,bootstrap=19703" --prefill "$prefill2,bootstrap=19705" \
    --decode "$decode" --decode "$decode2" -- --pd
through vllm 2 --engine vllm --prefill "$prefill" --prefill "$prefill2" --decode "$decode" --decode "$decode2" -- --pd
# Without a router: the generator sends both legs itself.
for wire in sglang vllm; do
    load --target 127.0.0.1:19700 --target 127.0.0.1:19704 --pd --legs "$wire" --prefill 127.0.0.1:19703 --prefill 127.0.0.1:19705
    seen "$wire" 2
done
"$target/examples/drain" --requests 3000
roll=("$target/examples/rollout" --rate 60 --events 10 --seconds 1 --pause 100 --decodes 4)
"${roll[@]}" --engine sglang
# Without tokens pairs are mixed: a judge that does not see that sees nothing.
said=$("${roll[@]}" --engine vllm --blind 2>&1 >/dev/null) && status=0 || status=$?
if [ "$status" -ne 1 ] || [[ $said != *"cross-cohort pairs: "* ]]; then
    echo "smoke: cross-cohort pairs were not seen: $status, $said" >&2
    exit 1
fi
