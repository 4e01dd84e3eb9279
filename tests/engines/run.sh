#!/usr/bin/env bash
# Drives real engines through the router: TANDEM_REAL_ENGINES=vllm,sglang tests/engines/run.sh DIR [PART...]
# Parts: texts keys aborts decode prefill (the engine that is stopped and killed); all without any.
# DIR keeps the installations, logs and results. Needs root (a network namespace), Python 3.11, about 10 GB of memory and
# 17 GB of disk. Without the variable nothing is done. TANDEM: the program to test, else it is built.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
if [ -z "${TANDEM_REAL_ENGINES:-}" ]; then
    echo "real engines are driven only on demand: set TANDEM_REAL_ENGINES=vllm,sglang"
    exit 0
fi
mkdir -p "${1:?a directory}"
dir=$(cd "$1" && pwd)
shift
root=$here/../..
tandem=${TANDEM:-}
if [ -z "$tandem" ]; then
    (cd "$root" && cargo build --profile quick --bin tandem)
    tandem=${CARGO_TARGET_DIR:-$root/target}/quick/tandem
fi
tandem=$(realpath "$tandem")

failed=0
for kind in ${TANDEM_REAL_ENGINES//,/ }; do
    "$here/install.sh" "$kind" "$dir"
    rm -f "$dir"/log."$kind".*
    unshare --net --pid --fork --kill-child --mount-proc \
        python3 "$here/drive.py" "$kind" "$dir" "$tandem" "$@" || failed=1
done
exit $failed
