"""Envoy with one worker as a relay of one leg: its configuration, and where its program is.

Choices that differ from a default, each because the default would end, refuse or burden what the others carry:

* `timeout`, `stream_idle_timeout` and `request_timeout` 0: a route's 15 s and a stream's 5 min are shorter than a cell may be.
* circuit breakers out of the way: 1,024 connections, requests and waiting requests would refuse the idle streams.
* no request id (a random number and two headers for each request) and no `x-envoy-` headers: nobody here asks for them.
* HTTP/1.1 is named and not found out from the first bytes.
* no hot restart: it is for a successor that shares the ports, of which there is none.

A filter that buffers is not there, so bodies go through both ways as they come; keep-alive and TCP_NODELAY are its defaults.
Its worker has the CPU; the main thread wakes up every five seconds to gather statistics, which stay on as they are for everybody.
"""

import pathlib
import re
import subprocess

CONFIG = """\
static_resources:
  listeners:
  - name: clients
    address: {{ socket_address: {{ address: 127.0.0.1, port_value: {port} }} }}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: clients
          codec_type: HTTP1
          generate_request_id: false
          stream_idle_timeout: 0s
          request_timeout: 0s
          {log}
          http_filters:
          - name: envoy.filters.http.router
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
              suppress_envoy_headers: true
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes:
              - match: {{ prefix: / }}
                route: {{ cluster: engines, timeout: 0s }}
  clusters:
  - name: engines
    type: STATIC
    connect_timeout: 5s
    circuit_breakers:
      thresholds:
      - {{ max_connections: 1000000, max_pending_requests: 1000000, max_requests: 1000000 }}
    load_assignment:
      cluster_name: engines
      endpoints:
      - lb_endpoints:
        - endpoint: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: {engine} }} }} }}
"""

# The default format, a line for each request.
LOG = """access_log:
          - name: envoy.access_loggers.file
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog
              path: {path}"""


def command(binary, scratch, ports, log):
    """Its command line; the configuration goes to `scratch`."""
    config = scratch / "envoy.yaml"
    config.write_text(CONFIG.format(port=ports.listen, engine=ports.engine, log=LOG.format(path=log) if log else ""))
    return [binary, "--config-path", str(config), "--concurrency", "1", "--log-level", "error", "--disable-hot-restart"]


def program(found):
    """The program itself, where `found` is the launcher of the Python package: that one would stay as its parent."""
    if not found:
        return ""
    beside = pathlib.Path(found).resolve().parent.parent.glob("lib/python3*/site-packages/envoy/_bin/envoy")
    return str(next(beside, found))


def version(binary):
    """From `envoy  version: COMMIT/NUMBER/Clean/RELEASE/BoringSSL`."""
    said = subprocess.run([binary, "--version"], capture_output=True, text=True, check=False).stdout
    number = re.search(r"version: \w+/([^/]+)/", said)
    return f"Envoy version {number[1]}" if number else "Envoy"
