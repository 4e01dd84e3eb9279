#!/usr/bin/env bash
# Makes what the integration tests need beyond cargo: a Python environment with the real `openai` client and the published
# schemas of Kubernetes.
# Safe to run again; quick when all is there.
set -euo pipefail
cd "$(dirname "$0")"

# The commands in the documents are run as they stand.
if ! command -v curl >/dev/null; then
    apt-get install -y -q curl >/dev/null || { echo "the tests need curl; install it first" >&2 && exit 1; }
fi

packages=(openai==3.57.0 kubernetes-validate==1.37.0)
venv=.venv
stamp=$venv/.installed

if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "${packages[*]}" ] && "$venv/bin/python" -c '' 2>/dev/null; then
    exit 0
fi

python3 -m venv --clear "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check "${packages[@]}"
echo "${packages[*]}" >"$stamp"
