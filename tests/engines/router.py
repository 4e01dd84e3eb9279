"""The router under test, as a process of its own in front of a pair."""

import os
import re
import subprocess
import time

from engines import BOOTSTRAP, PORTS, counter, get

FRONT, ADMIN = 9400, 9401


class Router:
    url = f"http://127.0.0.1:{FRONT}"
    admin = f"http://127.0.0.1:{ADMIN}"

    def __init__(self, program, kind, folder):
        local = "http://127.0.0.1:%d"
        prefill = local % PORTS["prefill"] + (f",bootstrap={BOOTSTRAP}" if kind == "sglang" else "")
        self.lines = folder / f"access.{kind}.json"
        self.lines.unlink(missing_ok=True)
        log = open(folder / f"log.{kind}.router", "ab")
        self.process = subprocess.Popen(
            [program, "router", "--engine", kind, "--prefill", prefill, "--decode", local % PORTS["decode"]]
            + ["--listen", f"127.0.0.1:{FRONT}", "--admin-listen", f"127.0.0.1:{ADMIN}", "--threads", "1"]
            + ["--access-log", str(self.lines), "--log-format", "text"],
            # The router takes its configuration from variables of its name too.
            env={k: v for k, v in os.environ.items() if not k.startswith("TANDEM")},
            stdout=log,
            stderr=log,
        )
        for _ in range(100):
            if get(self.admin + "/readyz")[0] == 200:
                return
            time.sleep(0.1)
        raise RuntimeError("the router was not ready within 10 s: see its log")

    def alive(self):
        return self.process.poll() is None

    def metric(self, name, **labels):
        return counter(get(self.admin + "/metrics")[1], name, labels)

    def at_rest(self, limit):
        """Waits until nothing is in flight here or on an endpoint; what is left after `limit` seconds."""
        end = time.monotonic() + limit
        while True:
            endpoints = get(self.admin + "/metrics/endpoints")[1]
            open_legs = counter(endpoints, "tandem_endpoint_in_flight", {})
            left = self.metric("tandem_requests_in_flight") + open_legs + self.metric("tandem_buffered_bytes")
            if left == 0 or time.monotonic() > end:
                return left
            time.sleep(0.05)

    def panics(self, folder, kind):
        text = (folder / f"log.{kind}.router").read_text(errors="replace")
        return re.findall(r".*panicked.*", text)

    def stop(self):
        self.process.terminate()
        try:
            return self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return None
