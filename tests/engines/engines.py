"""Starts, stops and asks real engines. Everything listens on loopback; the flags are the ones that make an engine run on a CPU."""

import os
import pathlib
import re
import signal
import subprocess
import time
import urllib.error
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
PORTS = {"whole": 9300, "prefill": 9301, "decode": 9302}
BOOTSTRAP = 8998
START_LIMIT = 300
COMMON = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "OMP_NUM_THREADS": "1",
}


def vllm_command(role, port):
    roles = {"prefill": "kv_producer", "decode": "kv_consumer"}
    flags = (
        "--dtype bfloat16 --max-model-len 4096 --max-num-seqs 64 --enforce-eager --distributed-executor-backend uni "
        "--kv-cache-memory-bytes 134217728 --enable-prompt-tokens-details --enable-auto-tool-choice --tool-call-parser hermes"
    ).split()
    if role in roles:
        connector = '{"kv_connector":"NixlConnector","kv_role":"%s","kv_buffer_device":"cpu"}' % roles[role]
        flags += ["--kv-transfer-config", connector]
    environment = {
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_HOST_IP": "127.0.0.1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1",
        "VLLM_NIXL_SIDE_CHANNEL_PORT": str(port + 1000),
        "UCX_TLS": "tcp,self",
        "UCX_NET_DEVICES": "lo",
    }
    return ["-m", "vllm.entrypoints.openai.api_server", "--model", "model", *flags], environment


def sglang_command(role, port):
    del port
    flags = (
        "--device cpu --attention-backend torch_native --sampling-backend pytorch --max-total-tokens 32768 --context-length 4096 "
        "--disable-overlap-schedule --disable-cuda-graph --skip-server-warmup --mem-fraction-static 0.1 --enable-metrics"
    ).split()
    if role != "whole":
        flags += ["--disaggregation-mode", role, "--disaggregation-transfer-backend", "mooncake"]
    if role == "prefill":
        flags += ["--disaggregation-bootstrap-port", str(BOOTSTRAP)]
    if role == "decode":
        flags += ["--disaggregation-decode-retraction-backup", "cpu_tensor"]
    environment = {
        "PYTHONPATH": str(HERE / "cpu_stub"),
        "SGLANG_USE_CPU_ENGINE": "1",
        "SGLANG_DISABLE_CUDNN_CHECK": "1",
        "SGLANG_HOST_IP": "127.0.0.1",
        "HOST_IP": "127.0.0.1",
        "MOONCAKE_PROTOCOL": "tcp",
        "SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT": "30",
        "SGLANG_DISAGGREGATION_WAITING_TIMEOUT": "30",
    }
    return ["-m", "sglang.launch_server", "--model-path", "model", *flags], environment


COMMANDS = {"vllm": vllm_command, "sglang": sglang_command}


class Engine:
    """One engine process: `role` is whole (no split), prefill or decode."""

    def __init__(self, kind, role, folder):
        self.kind, self.role, self.folder = kind, role, pathlib.Path(folder)
        self.url = f"http://127.0.0.1:{PORTS[role]}"
        self.process = None

    def start(self):
        port = PORTS[self.role]
        command, environment = COMMANDS[self.kind](self.role, port)
        python = self.folder / self.kind / "bin" / "python"
        log = open(self.folder / f"log.{self.kind}.{self.role}", "ab")
        inherited = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        self.process = subprocess.Popen(
            ["nice", "-n", "5", str(python), *command]
            + ["--served-model-name", "tiny", "--host", "127.0.0.1", "--port", str(port)],
            cwd=self.folder,
            env=inherited | COMMON | environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )

    def wait_ready(self):
        end = time.monotonic() + START_LIMIT
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.kind} {self.role} died at start: see its log")
            if get(self.url + "/health")[0] == 200:
                return
            time.sleep(0.5)
        raise RuntimeError(f"{self.kind} {self.role} was not ready within {START_LIMIT} s")

    def signal(self, number):
        """To the engine's main process for SIGTERM, as an orchestrator does; SIGKILL to all its processes, as a lost node."""
        try:
            if number == signal.SIGKILL:
                os.killpg(self.process.pid, number)
            else:
                self.process.send_signal(number)
        except ProcessLookupError:
            pass

    def wait_gone(self, limit=60):
        """Seconds until the process was gone."""
        began = time.monotonic()
        try:
            self.process.wait(limit)
        except subprocess.TimeoutExpired:
            pass
        self.signal(signal.SIGKILL)
        self.process.wait(10)
        return time.monotonic() - began

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def stop(self):
        if self.process is not None:
            self.signal(signal.SIGKILL)
            self.process.wait(10)

    def counter(self, name, **labels):
        """Sum over the series of a metric that carry these labels."""
        return counter(get(self.url + "/metrics")[1], name, labels)


def counter(text, name, labels):
    total = 0.0
    for line in text.splitlines():
        found = re.match(r"([A-Za-z_:]+)(\{.*\})? (\S+)$", line)
        if found and found[1] == name and all(f'{k}="{v}"' in (found[2] or "") for k, v in labels.items()):
            total += float(found[3])
    return total


def get(url, limit=5):
    """Status and text; status 0 if nobody answers."""
    try:
        with urllib.request.urlopen(url, timeout=limit) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(errors="replace")
    except OSError:
        return 0, ""
