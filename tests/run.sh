#!/usr/bin/env bash
# Passes the tests: makes what they need (once), then the documentation's examples, then everything else.
# Arguments go to `cargo nextest run`: tests/run.sh -E 'test(b20)'
set -euo pipefail
cd "$(dirname "$0")/.."

tests/setup.sh
if ! cargo nextest --version >/dev/null 2>&1; then
    cargo install --locked cargo-nextest --version 0.9.143
fi
cargo test --quiet --doc
cargo nextest run --no-fail-fast "$@"
