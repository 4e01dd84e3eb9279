"""Who routes prefill and decode: command lines that leave every router only that work.

One prefill and one decode, or some of each, one CPU (a peer's thread pool is as large as the CPUs it may use, and it may use one), no
line per request in a log. The peers come from PyPI; they are Rust programs inside a Python extension, and Python has
nothing to do once they run.

Choices that differ from a peer's default, each because it costs the peer less or nothing:

* policy round_robin. The default, cache_aware, keeps a tree of all prompts, which is nothing to choose by here;
  vllm-router's asks both engines for the prompt's tokens first (/v1/chat/completions/render), for each request.
* log level of errors only; the default writes several lines for each request.
* worker-startup-check-interval 1: they look for their engines every 30 s.
* smg: no polling of the engines' load, which nothing here looks at.

Breaker and retries stay as they are: a request that goes well does not meet them. vllm-router's queue admits as many at
once as it ever will.
"""

import pathlib
import shutil
import subprocess
from dataclasses import dataclass, field

NAMES = ("direct-sglang", "direct-vllm", "tandem-sglang", "tandem-vllm", "sglang-router", "smg",
         "vllm-router")

#: Started as modules: sglang-router brings a program named "smg" of its own, which hides the other one's.
MODULES = {"sglang-router": "sglang_router.launch_router", "smg": "smg.launch_router",
           "vllm-router": "vllm_router.launch_router"}

EXTRA = {
    "sglang-router": ["--pd-disaggregation", "--log-level", "error", "--shutdown-grace-period-secs", "1"],
    "smg": ["--pd-disaggregation", "--log-level", "error", "--shutdown-grace-period-secs", "1",
            "--disable-load-monitoring"],
    "vllm-router": ["--vllm-pd-disaggregation", "--kv-connector", "nixl", "--log-level", "error"],
}


@dataclass
class Pair:
    name: str
    binary: str = ""
    version: str = ""
    logs: bool = False
    kind: str = field(init=False)
    #: Which legs the engine has to have seen.
    wire: str = field(init=False)

    def __post_init__(self):
        self.kind = "direct" if self.name.startswith("direct") else "pair"
        self.wire = "vllm" if "vllm" in self.name else "sglang"

    @property
    def peer(self):
        return self.name in MODULES

    def runs(self, shape):
        return shape.pd

    def command(self, _scratch, ports, _log):
        """As Contender.command."""
        prefills, decodes = [], []
        for port in ports.prefills:
            prefills += ["--prefill", *self.prefill(port)]
        for port in ports.decodes:
            decodes += ["--decode", f"http://127.0.0.1:{port}"]
        if not self.peer:
            return [self.binary, "router", "--engine", self.wire, *prefills, *decodes, *tandem(ports)], False
        return [self.binary, "-m", MODULES[self.name], "--host", "127.0.0.1", "--port", str(ports.listen),
                "--prometheus-host", "127.0.0.1", "--prometheus-port", str(ports.admin), *prefills, *decodes,
                "--policy", "round_robin", "--worker-startup-check-interval", "1", *EXTRA[self.name]], False

    def prefill(self, port):
        """One prefill as this router is told of it. Its rooms are at the port where it listens."""
        url = f"http://127.0.0.1:{port}"
        if self.wire == "vllm":
            return [url]
        return [url, str(port)] if self.peer else [f"{url},bootstrap={port}"]

    def legs(self, ports):
        """What makes the generator send both legs itself."""
        prefills = [word for port in ports.prefills for word in ("--prefill", f"127.0.0.1:{port}")]
        return ["--legs", self.wire, *prefills] if self.kind == "direct" else []

    def find(self, tools, peers):
        """Looks for its program; False where there is none."""
        if self.kind == "direct":
            self.version = "no router in between"
            return True
        if not self.peer:
            self.binary = str(tools.tandem)
            self.version = first_line([self.binary, "--version"])
            return True
        for self.binary in interpreters(self.name, peers):
            ask = f"from importlib import metadata; print(metadata.version({self.name!r}))"
            if number := first_line([self.binary, "-c", ask]):
                self.version = f"{self.name} {number}"
                return True
        return False


def tandem(ports, log=None):
    """Flags of every Tandem here; the last ones only to leave at once when the cell is over."""
    return ["--listen", f"127.0.0.1:{ports.listen}", "--admin-listen", f"127.0.0.1:{ports.admin}", "--threads", "1",
            "--access-log", str(log) if log else "off", "--shutdown-delay", "0s", "--grace", "1s"]


def interpreters(name, peers):
    """Pythons that may have the peer: those of the environments, or the one its program on PATH names in its first line."""
    if peers:
        return [str(folder / "python3") for folder in environments(peers)]
    script = shutil.which(name)
    if not script:
        return []
    with pathlib.Path(script).open(encoding="utf-8", errors="replace") as lines:
        first = lines.readline().strip()
    return [first[2:]] if first.startswith("#!") else []


def environments(peers):
    """The folders with programs of the Python environments in `peers`: it is one of them, or holds some."""
    if not peers:
        return []
    found = [peers, peers / "bin", *sorted(peers.glob("*/bin"))]
    return [folder.resolve() for folder in found if (folder / "python3").exists()]


def first_line(words):
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip().splitlines()[0] if done.returncode == 0 and done.stdout.strip() else ""
