"""One cell: a fresh router, a warm-up, the load, and the router's CPU and memory around it."""

import contextlib
import json
import shutil
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path

from . import procfs, shapes, syscalls
from .contenders import Ports
from .process import free_port, placed, running, wait_for

#: Enough to open the pools, fault the pages in and fill the branch predictors.
WARM_UP = ["--connections", "64", "--requests", "2000"]

#: Share of the router's CPU that other programs may use before a cell counts as disturbed. Ticks make it coarse.
CROWDED = 0.08


class Bench:
    def __init__(self, tools, scratch, router_cpu, load_cpu, realtime):
        self.tools, self.scratch = tools, scratch
        self.router_cpu, self.load_cpu = router_cpu, load_cpu
        self.router_place = placed(router_cpu, realtime, may_wait=False)
        self.load_place = placed(load_cpu, realtime, may_wait=True)
        self.realtime = realtime
        #: What counts system calls, where they are counted.
        self.counter = None
        # Every shape takes as many of them as it has engines.
        self.decodes, self.prefills = ([free_port() for _ in range(shapes.MOST)] for _ in range(2))
        self.engine_port = self.decodes[0]

    @contextlib.contextmanager
    def engine(self):
        """The fake engine, for all cells: whole, or as prefills and decodes."""
        command = [self.tools.engine]
        for flag, ports in ("--listen", self.decodes), ("--prefill", self.prefills):
            command += [word for port in ports for word in (flag, f"127.0.0.1:{port}")]
        with running(command, self.load_place, self.scratch / "engine.out") as process:
            wait_for(self.engine_port, process)
            yield

    def cell(self, contender, shape, patience):
        """Measures one contender under one shape, up to `patience` times more while other programs use its CPU.

        The quietest attempt counts. `invalid` says why the numbers are not to be used; that is never tried again.
        """
        best = self.attempt(contender, shape)
        while patience and best.get("disturbed") and not best.get("invalid"):
            patience -= 1
            again = self.attempt(contender, shape)
            if again.get("invalid") or again["taken"] < best["taken"]:
                best = again
        return best

    def attempt(self, contender, shape):
        """One measurement with a fresh router."""
        scratch = Path(tempfile.mkdtemp(dir=self.scratch))
        try:
            few = slice(shape.engines)
            ports = Ports(free_port(), free_port(), tuple(self.decodes[few]), tuple(self.prefills[few]))
            if contender.kind == "direct":
                return self.loaded(contender, shape, ports, None)
            return self.routed(contender, shape, scratch, ports)
        except (OSError, RuntimeError, subprocess.SubprocessError, ValueError) as problem:
            return {"invalid": str(problem)}
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def routed(self, contender, shape, scratch, ports):
        log = scratch / "access.log" if contender.logs else None
        command, by_stdout = contender.command(scratch, ports, log)
        output = log if by_stdout else scratch / "router.out"
        with running(command, self.router_place, output) as process:
            wait_for(ports.listen, process)
            cell = self.loaded(contender, shape, ports, process.pid)
        if log:
            # Everything is flushed when the router has left.
            cell["log_lines"] = log.read_bytes().count(b"\n") - cell.pop("lines_before", 0)
        return cell

    def loaded(self, contender, shape, ports, pid):
        """Warm-up and load, through the router `pid` or to the engines; CPU and memory of `pid`, if there is one."""
        targets = ports.decodes if pid is None else [ports.listen]
        to = [word for port in targets for word in ("--target", f"127.0.0.1:{port}")]
        to += contender.legs(ports) + shape.asking()
        if shape.pd:
            self.answers(to)
        warm = self.generate([*to, *WARM_UP])
        if warm["errors"]:
            raise RuntimeError(f"warm-up: {warm['faults']}, engine: {self.legs()}")
        if shape.pd:
            self.legs()
        before, counts = self.reading(pid), None
        if shape.unit == "stream":
            load, during = self.hold(shape, to, pid)
        else:
            with self.counting(pid) as counts:
                load = self.generate([*to, *shape.command(self.scratch)])
            during = self.reading(pid)
        cell = {"load": load, "lines_before": warm["requests"]}
        if counts:
            cell["syscalls"] = counts
        if shape.pd:
            cell["legs"] = self.legs()
            if cell["legs"] != self.right_legs(contender.wire, load["requests"], ports):
                cell["invalid"] = f"{load['requests']} answers, but the engine saw {cell['legs']}"
        if load["errors"]:
            cell["invalid"] = f"{load['errors']} of {load['errors'] + load['requests']} wrong: {load['faults']}"
        if pid is not None:
            cell |= figures(shape, load, before, during)
            # In the real-time class the others had only what the router left.
            cell["disturbed"] = cell["taken"] > CROWDED and not self.realtime
        return cell

    def counting(self, pid):
        """Counts the router's system calls, if that is what is asked for."""
        if self.counter is None or pid is None:
            return contextlib.nullcontext()
        return syscalls.counted(pid, self.counter, self.scratch)

    @staticmethod
    def right_legs(wire, requests, ports):
        """What the engine has to have seen: so many whole pairs, nothing besides, and no engine was left out."""
        prefills = 0 if wire == "one_leg" else len(ports.prefills)
        return {"one_leg": 0, "sglang": 0, "vllm": 0, "breaches": {}, "open": 0, wire: requests,
                "prefills": prefills, "decodes": len(ports.decodes)}

    def answers(self, to):
        """Until a request is answered right: a router may listen before it has found its engines."""
        end = time.monotonic() + 60
        while (first := self.generate([*to, "--connections", "1", "--requests", "1"]))["errors"]:
            if time.monotonic() > end:
                raise RuntimeError(f"no right answer after 60 s: {first['faults']}, engine: {self.legs()}")
            time.sleep(0.2)

    def legs(self):
        """What the engine has seen since the last time: whole pairs by their wire, and what was no pair."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.engine_port}/load-report", timeout=10) as answer:
            return json.load(answer)

    def generate(self, words):
        done = subprocess.run(
            [self.tools.loadgen, *words], capture_output=True, text=True,
            check=False, timeout=300, preexec_fn=self.load_place)
        if not done.stdout:
            raise RuntimeError(f"generator: {done.stderr.strip()[-300:]}")
        return json.loads(done.stdout)

    def hold(self, shape, to, pid):
        """Opens the silent streams, reads the router while they are open, and lets them go."""
        with subprocess.Popen(
            [self.tools.loadgen, *to, *shape.command(self.scratch)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True, preexec_fn=self.load_place,
        ) as process:
            process.stdout.readline()
            # What a router frees or grows late belongs to the streams too.
            time.sleep(0.5)
            during = self.reading(pid)
            out, _ = process.communicate("\n", timeout=120)
        return json.loads(out), during

    def reading(self, pid):
        """CPU and memory of the router at this moment."""
        if pid is None:
            return None
        rss, peak = procfs.memory_kib(pid)
        return {"at": time.monotonic(), "cpu": procfs.cpu_seconds(pid), "run": procfs.run_seconds(pid),
                "all": procfs.busy_seconds(self.router_cpu), "rss": rss, "peak": peak}


def figures(shape, load, before, after):
    """What the load cost the router."""
    ticks = after["cpu"] - before["cpu"]
    wall = max(after["at"] - before["at"], 1e-9)
    fine = after["run"] - before["run"] if after["run"] and before["run"] else ticks
    cell = {
        "cpu_s": fine,
        "cpu_s_by_ticks": ticks,
        "busy": fine / wall,
        # What other programs used of the router's CPU.
        "taken": max(after["all"] - before["all"] - fine, 0) / wall,
        "rss_before_kib": before["rss"],
        "rss_kib": after["rss"],
        "rss_peak_kib": after["peak"],
    }
    if shape.unit == "stream":
        cell["kib_per_stream"] = (after["rss"] - before["rss"]) / max(load["requests"], 1)
        return cell
    cell["us_per_request"] = fine * 1e6 / max(load["requests"], 1)
    if load["events"]:
        cell["us_per_event"] = fine * 1e6 / load["events"]
    return cell
