"""Who relays one leg: command lines and configurations that make the peers do the same work.

One thread each, keep-alive on both sides, nothing buffered on the way back, bodies of any size, timeouts longer than
any cell. Where a default would cost a peer more than a competent operator lets it, it is raised, and the reason said.
"""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass, field

from . import envoy, machine, pairs

#: Of the shapes with one leg; `pairs` has the others.
NAMES = ("direct", "haproxy", "haproxy-cork", "nginx", "envoy", "tandem", "haproxy+log", "nginx+log", "envoy+log",
         "tandem+log")

# http-no-delay, because without it a response that goes on is sent with MSG_MORE: an event waits for the next one, or
# 200 ms where none comes. That is cheaper, and no way to stream tokens. "haproxy-cork" is HAProxy without the option, for
# comparison with measurements that left it out.
HAPROXY = """\
global
  nbthread 1
  maxconn {maxconn}
  {global_log}
defaults
  mode http
  timeout connect 5s
  timeout client 300s
  timeout server 300s
  timeout http-keep-alive 300s
  http-reuse always
  {delay}
  {log}
frontend clients
  bind 127.0.0.1:{port}
  default_backend engines
backend engines
  {servers}
"""

# keepalive_requests is 1,000 by default and would close connections in the middle of a cell. client_body_buffer_size
# is 16k by default and would send every 108 KB body through a file; it is what a body takes at most, not what each takes.
NGINX = """\
daemon off;
worker_processes 1;
worker_rlimit_nofile {files};
pid {scratch}/nginx.pid;
error_log {scratch}/nginx.error.log error;
{user}
events {{ worker_connections {files}; }}
http {{
  access_log {log};
  client_body_temp_path {scratch}/body;
  proxy_temp_path {scratch}/proxy;
  fastcgi_temp_path {scratch}/fastcgi;
  uwsgi_temp_path {scratch}/uwsgi;
  scgi_temp_path {scratch}/scgi;
  client_max_body_size 0;
  client_body_buffer_size 2m;
  keepalive_timeout 300s;
  keepalive_requests 100000000;
  upstream engines {{
    server 127.0.0.1:{engine};
    keepalive 512;
    keepalive_requests 100000000;
    keepalive_timeout 300s;
  }}
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location / {{
      proxy_pass http://engines;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host $http_host;
      proxy_buffering off;
      proxy_read_timeout 300s;
      proxy_send_timeout 300s;
    }}
  }}
}}
"""


@dataclass(frozen=True)
class Ports:
    """Where a router listens, and where its engines do (as decodes, and as prefills)."""

    listen: int
    admin: int
    decodes: tuple
    prefills: tuple

    @property
    def engine(self):
        """Of one leg."""
        return self.decodes[0]


@dataclass
class Contender:
    name: str
    binary: str = ""
    version: str = ""
    #: Which legs the engine has to have seen.
    wire: str = "one_leg"
    peer: bool = False
    logs: bool = field(init=False)
    corks: bool = field(init=False)
    kind: str = field(init=False)

    def __post_init__(self):
        variant, _, log = self.name.partition("+")
        self.kind, _, cork = variant.partition("-")
        self.logs, self.corks = bool(log), bool(cork)

    def runs(self, shape):
        """Whether this variant has something to show under `shape`."""
        if shape.pd:
            # What one leg costs; and where that is latency, the floor it has.
            return self.name == "haproxy" or self.name == "direct" and shape.adds
        return (shape.logs or not self.logs) and (shape.unit == "event" or not self.corks)

    def command(self, scratch, ports, log):
        """Its command line; configuration goes to `scratch`, the access log to `log` (None: off).

        The second value says whether the log is what it writes to stdout.
        """
        if self.kind == "haproxy":
            config = scratch / "haproxy.cfg"
            config.write_text(HAPROXY.format(
                port=ports.listen, maxconn=(machine.descriptors() - 200) // 2,
                servers="\n  ".join(f"server engine{port} 127.0.0.1:{port}" for port in ports.decodes),
                delay="" if self.corks else "option http-no-delay",
                global_log="log stdout format raw local0" if log else "",
                log="log global\n  option httplog" if log else ""))
            # It cannot write to a file itself; its stdout is one.
            return [self.binary, "-db", "-f", str(config)], bool(log)
        if self.kind == "nginx":
            config = scratch / "nginx.conf"
            config.write_text(NGINX.format(
                port=ports.listen, engine=ports.engine, scratch=scratch, files=machine.descriptors() - 200,
                user="user root;" if os.geteuid() == 0 else "",
                log=f"{log} combined" if log else "off"))
            return [self.binary, "-p", str(scratch), "-c", str(config), "-e", str(scratch / "nginx.error.log")], False
        if self.kind == "envoy":
            return envoy.command(self.binary, scratch, ports, log), False
        return [self.binary, "router", "--worker", f"http://127.0.0.1:{ports.engine}", *pairs.tandem(ports, log)], False

    def legs(self, _ports):
        """What makes the generator send both legs itself."""
        return []

    def find(self, tools, peers):
        """Looks for its program; False where there is none."""
        if self.kind == "direct":
            self.version = "no router in between"
            return True
        self.binary = str(tools.tandem) if self.kind == "tandem" else locate(self.kind, peers)
        self.version = version(self.kind, self.binary) if self.binary else ""
        return bool(self.binary)


def everybody():
    """All there are, not looked for yet."""
    return [*map(Contender, NAMES), *map(pairs.Pair, pairs.NAMES)]


def available(wanted, tools, peers):
    """The contenders that are here, and a notice for each program that is not."""
    found, missing = [], {}
    for each in wanted:
        if each.find(tools, peers):
            found.append(each)
        else:
            missing[re.split("[+]|-cork", each.name)[0]] = None
    return found, [f"{name} is not installed and is left out" for name in missing]


def locate(kind, peers):
    """Its program: in an environment of `peers`, on PATH, or where Debian keeps servers."""
    folders = [*pairs.environments(peers), os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"]
    found = shutil.which(kind, path=os.pathsep.join(map(str, folders)))
    return envoy.program(found) if kind == "envoy" else found


def version(kind, binary):
    if kind == "envoy":
        return envoy.version(binary)
    words = [binary, "--version" if kind == "tandem" else "-v"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    lines = (done.stdout + done.stderr).strip().splitlines()
    return re.sub(r"\s+\d{4}/.*| version:?", "", lines[0]).strip() if lines else "unknown"
