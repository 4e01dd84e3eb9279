#!/usr/bin/env bash
# Makes what the integration tests need beyond cargo: a Python environment with the real `openai` client.
# Safe to run again; quick when all is there.
set -euo pipefail
cd "$(dirname "$0")"

openai_version=3.57.0
venv=.venv
stamp=$venv/.installed

if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$openai_version" ] && "$venv/bin/python" -c '' 2>/dev/null; then
    exit 0
fi

python3 -m venv --clear "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check "openai==$openai_version"
echo "$openai_version" >"$stamp"
