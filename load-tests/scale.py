#!/usr/bin/env python3
"""How what a request or an event costs Tandem grows: with endpoints, open streams, the body, and the workers.

    python3 load-tests/scale.py                  # release build, then a minute
    python3 load-tests/scale.py --curves body    # part of endpoints,streams,body,workers
    python3 load-tests/scale.py --small          # a look whether it works

One leg, no peer: what matters is how a column grows, not its figures. Every answer is verified. Linux, two CPUs,
Python 3.9 or newer, cargo; up to 20,000 descriptors.
"""

import argparse
import json
import os
import pathlib
import sys
import tempfile

from relay import build, machine, pairs, procfs
from relay.contenders import Ports
from relay.measure import Bench
from relay.process import free_port, running, wait_for

HERE = pathlib.Path(__file__).resolve().parent
CURVES = ("endpoints", "streams", "body", "workers")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--curves", default=",".join(CURVES))
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--profile", default="release", help="cargo profile of the router (default release)")
    parser.add_argument("--tandem-bin", type=pathlib.Path, help="measure this binary in place of building one")
    parser.add_argument("--no-build", action="store_true", help="use what an earlier run has built")
    parser.add_argument("--router-cpu", type=int, default=0)
    parser.add_argument("--load-cpu", type=int, default=1)
    parser.add_argument("--realtime", action="store_true", help="go before the machine's other programs (needs root)")
    parser.add_argument("--out", type=pathlib.Path, default=HERE / "out" / "scale.json")
    return parser.parse_args()


class Scale(Bench):
    """An engine at as many addresses as are asked for, and routers before it."""

    def router(self, endpoints=1, threads=1):
        """A running router; both are the caller's to end."""
        scratch = pathlib.Path(tempfile.mkdtemp(dir=self.scratch))
        ports = Ports(free_port(), free_port(), (self.engine_port,), ())
        workers = [word for n in range(endpoints)
                   for word in ("--worker", f"http://127.1.{n // 250}.{n % 250 + 1}:{self.engine_port}")]
        flags = pairs.tandem(ports)
        flags[flags.index("--threads") + 1] = str(threads)
        return ports, running([str(self.tools.tandem), "router", *workers, *flags], self.router_place, scratch / "router.out")

    def load(self, ports, pid, **words):
        """CPU seconds of the router for this load, and what the generator saw."""
        before = self.spent(pid)
        seen = self.generate(["--target", f"127.0.0.1:{ports.listen}",
                              *(part for key, value in words.items()
                                for part in (f"--{key.replace('_', '-')}", str(value)))])
        if seen["errors"]:
            raise RuntimeError(f"{words}: {seen['errors']} wrong answers: {seen['faults']}")
        return self.spent(pid) - before, seen

    @staticmethod
    def spent(pid):
        ran = procfs.run_seconds(pid)
        return procfs.cpu_seconds(pid) if ran is None else ran


def endpoints(bench, small):
    """Small chats over more and more endpoints, connections to all of them open."""
    for count in (10, 100) if small else (10, 100, 1_000, 10_000):
        ports, router = bench.router(endpoints=count)
        with router as process:
            wait_for(ports.listen, process)
            # Twice the endpoints: by then every pool has its connection.
            bench.load(ports, process.pid, connections=32, requests=max(2_000, 2 * count))
            cpu, seen = bench.load(ports, process.pid, connections=32, requests=2_000 if small else 20_000)
            yield [f"{count:,}", us(cpu, seen["requests"]), mib(process.pid)]


def streams(bench, small):
    """More and more streams that share 8,000 events a second: what one event more costs, opening left out."""
    for count in (10, 100) if small else (10, 100, 1_000, 8_000):
        ports, router = bench.router()
        with router as process:
            wait_for(ports.listen, process)
            gap = {"connections": count, "requests": count, "gap_us": count * 125}
            few, many = (2, 6) if count > 1_000 else (8_000 // count, 40_000 // count)
            bench.load(ports, process.pid, events=few, **gap)
            first, less = bench.load(ports, process.pid, events=few, **gap)
            second, more = bench.load(ports, process.pid, events=many, **gap)
            yield [f"{count:,}", us(second - first, more["events"] - less["events"])]


def body(bench, small):
    """Larger and larger requests."""
    for size, requests in ((1 << 10, 2_000), (1 << 20, 20)) if small else (
            (1 << 10, 20_000), (1 << 14, 10_000), (1 << 17, 5_000), (1 << 20, 500), (1 << 23, 60)):
        ports, router = bench.router()
        with router as process:
            wait_for(ports.listen, process)
            few = {"connections": 8 if size > 1 << 17 else 32, "body_bytes": size}
            bench.load(ports, process.pid, requests=max(requests // 5, 16), **few)
            cpu, seen = bench.load(ports, process.pid, requests=requests, **few)
            yield [f"{size >> 10:,}", us(cpu, seen["requests"]), us(cpu, seen["requests"] * (size >> 10))]


def workers(bench, small):
    """T11: the same saturated streams through one traffic thread and through two, both free to use either CPU."""
    for threads in (1, 2):
        ports, router = bench.router(threads=threads)
        with router as process:
            wait_for(ports.listen, process)
            # A second thread on the router's one CPU would only wait there.
            os.sched_setaffinity(process.pid, bench.both)
            for task in procfs.listing(f"/proc/{process.pid}/task"):
                os.sched_setaffinity(int(task), bench.both)
            load = {"connections": 32, "events": 200, "burst": 4}
            bench.load(ports, process.pid, requests=64, **load)
            cpu, seen = bench.load(ports, process.pid, requests=320 if small else 3_200, **load)
            yield [str(threads), us(cpu, seen["events"])]


HEADS = {
    "endpoints": ("endpoints", "CPU µs per request", "resident MiB"),
    "streams": ("open streams", "CPU µs per event"),
    "body": ("body, KiB", "CPU µs per request", "CPU µs per KiB"),
    "workers": ("traffic threads", "CPU µs per event"),
}


def us(seconds, count):
    return f"{seconds * 1e6 / max(count, 1):.2f}"


def mib(pid):
    return f"{procfs.memory_kib(pid)[0] / 1024:.0f}"


def main():
    args = arguments()
    unknown = set(args.curves.split(",")) - set(CURVES)
    if unknown:
        sys.exit(f"scale: no such curve: {', '.join(sorted(unknown))}; there are {', '.join(CURVES)}")
    machine.require({args.router_cpu, args.load_cpu})
    tools, found = build.tools(args, needs_tandem=True), {}
    with tempfile.TemporaryDirectory(prefix="scale-") as scratch:
        bench = Scale(tools, pathlib.Path(scratch), args.router_cpu, args.load_cpu, args.realtime)
        bench.both = {args.router_cpu, args.load_cpu}
        with running([tools.engine, "--listen", f"0.0.0.0:{bench.engine_port}"], bench.load_place,
                     bench.scratch / "engine.out") as process:
            wait_for(bench.engine_port, process)
            for curve in filter(args.curves.split(",").__contains__, CURVES):
                rows = found[curve] = []
                print(f"\n| {' | '.join(HEADS[curve])} |\n|{'---|' * len(HEADS[curve])}", flush=True)
                for row in globals()[curve](bench, args.small):
                    rows.append(row)
                    print(f"| {' | '.join(row)} |", flush=True)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps({"machine": machine.describe(), "curves": found}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
