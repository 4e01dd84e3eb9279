#!/usr/bin/env python3
"""An hour of mixed load with churn, faults and reloads: do memory, sockets, tasks and series stay flat? (S5)

    cargo build --profile quick --bin tandem && cp target/quick/tandem /tmp/tandem
    cargo build --profile quick --example drain && cp /tmp/tandem target/quick/tandem
    python3 load-tests/soak.py                  # an hour; --seconds 120 for a look
    python3 load-tests/soak.py --judge FILE     # judges the samples of an earlier run

Load, churn and faults are the storm of drains (`drain/`), slowed down: three routers, 13 engines, Pods that are withdrawn, deleted and
come back, an API server that is late and cuts its watches, engines that fail, clients that leave; its judge of in-flight reports works all
the time. Beside it this program rewrites the routers' configuration every 20 s (limits, policies and a split; one time in four with a mistake), sends what no client should,
and reads processes and metrics every 5 s. Exit code 1: something grew, was left over, or the storm found a fault.
"""

import argparse
import json
import pathlib
import random
import re
import socket
import statistics
import subprocess
import sys
import threading
import time
import urllib.request

from relay import procfs

ROOT = pathlib.Path(__file__).resolve().parent.parent
SAMPLE_S, RELOAD_S = 5, 20
# Of a run: before that caches, pools and the allocator are still filling.
WARM_UP = 1 / 6
# How far the median of a part of the run may lie from that of the whole, and what is no news in any of them.
PARTS, FLAT = 5, 0.05
SLACK = {"rss_kib": 512, "sockets": 4, "files": 2, "threads": 4, "tasks": 6, "series": 20, "endpoint_series": 100}
# What a client of the storm may get: the client left (0), the answer was cut (1), and what engines' faults are answered with. Of all
# requests so many are answered with 200 at least: one in 25 carries a fault, one in 20 leaves early.
EXPLAINED, WHOLE = {0, 1, 200, 500, 502, 503, 504}, 0.9
# Gauges that are 0 once nobody asks any more.
ZERO = ("tandem_requests_in_flight", "tandem_buffered_bytes", "tandem_downstream_connections")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=3600)
    parser.add_argument("--profile", default="quick", help="cargo profile of the built programs (default quick)")
    parser.add_argument("--pace", type=int, default=250, help="mean pause of each of 36 clients, ms (default 250)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--judge", type=pathlib.Path, help="judge these samples and run nothing")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "load-tests" / "out" / "soak.json")
    return parser.parse_args()


def main():
    args = arguments()
    run = json.loads(args.judge.read_text()) if args.judge else soak(args)
    if not args.judge:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(run, indent=1) + "\n")
    wrong = judge(run)
    show(run)
    for each in wrong:
        print(f"soak: {each}", file=sys.stderr)
    return 1 if wrong else 0


def soak(args):
    """The run: samples of each router, what was done beside it, and how the storm ended."""
    folder = ROOT / "target" / args.profile
    # The last samples are taken when the storm has let go of everything and upstream connections had time to be closed.
    command = [folder / "examples" / "drain", "--requests", str(10 ** 9), "--limit", str(args.seconds), "--pace", str(args.pace),
               "--step", "400", "--fresh", "--every", "50", "--quiet", "30", "--seed", str(args.seed)]
    storm = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    said = Said(storm.stderr)
    try:
        routers = [Router(pid) for pid in children(storm)]
        done = {"reloads": 0, "broken": 0, "garbage": 0, "answers": {}}
        stop = threading.Event()
        beside = [threading.Thread(target=work, args=(routers, done, stop), daemon=True) for work in (reloading, misbehaving)]
        for each in beside:
            each.start()
        samples = watch(storm, said, routers, stop, args.seconds)
    finally:
        storm.kill()
    out = storm.stdout.read()
    for each in beside:
        each.join(10)
    return {"seconds": args.seconds, "samples": samples, "beside": done, "storm": out.strip().splitlines(), "faults": said.faults}


class Said:
    """What the storm writes to stderr: progress, or a fault."""

    def __init__(self, stream):
        self.quiet, self.faults = False, []
        threading.Thread(target=self.read, args=(stream,), daemon=True).start()

    def read(self, stream):
        for line in stream:
            line = line.rstrip()
            self.quiet |= line.startswith("quiet")
            if not re.match(r" *\d+ s: |quiet", line):
                self.faults.append(line)
            print(time.strftime("%H:%M:%S"), line, flush=True)


class Router:
    def __init__(self, pid):
        self.pid = pid
        words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        self.config = pathlib.Path(words[words.index(b"--config") + 1].decode())
        self.text = self.config.read_text()
        self.log, self.read = self.config.with_name("log"), 0
        self.front = self.address(r"^listen: (\S+)")
        self.admin = self.address(r"^admin: \{ listen: (\S+) \}")

    def address(self, pattern):
        host, port = re.search(pattern, self.text, re.MULTILINE)[1].rsplit(":", 1)
        return host, int(port)

    def page(self, path):
        with urllib.request.urlopen(f"http://{self.admin[0]}:{self.admin[1]}{path}", timeout=20) as answer:
            return answer.read().decode()

    def panics(self):
        """Lines of its log since the last look that tell of a panic: the log is gone when the storm is over."""
        with self.log.open("rb") as log:
            log.seek(self.read)
            fresh, whole, _rest = log.read().rpartition(b"\n")
        self.read += len(fresh) + len(whole)
        return [line for line in fresh.decode(errors="replace").splitlines() if "panicked" in line]

    def sample(self):
        """Resident memory, descriptors, threads, and of the metrics: how many series, tasks, and what is in flight."""
        lines = [line for line in self.page("/metrics").splitlines() if line and not line.startswith("#")]
        value = dict(line.rsplit(" ", 1) for line in lines)
        fds = [target(self.pid, fd) for fd in procfs.listing(f"/proc/{self.pid}/fd")]
        series = [line for line in self.page("/metrics/endpoints").splitlines() if line and not line.startswith("#")]
        return {
            "rss_kib": procfs.memory_kib(self.pid)[0],
            "sockets": sum(fd.startswith("socket:") for fd in fds),
            "files": sum(not fd.startswith("socket:") for fd in fds),
            "threads": len(procfs.listing(f"/proc/{self.pid}/task")),
            "tasks": sum(float(value[name]) for name in value if name.startswith("tandem_runtime_tasks{")),
            "series": len(lines),
            "endpoint_series": len(series),
            "idle_upstream": total(series, "tandem_endpoint_idle_connections"),
            "carried": total(series, "tandem_endpoint_carried") + total(series, "tandem_endpoint_in_flight"),
            "cpu_s": procfs.cpu_seconds(self.pid),
            "reloaded": total(lines, 'tandem_config_reloads_total{result="ok"}'),
            "refused": total(lines, 'tandem_config_reloads_total{result="error"}'),
        } | {name: float(value[name]) for name in ZERO}


def total(lines, family):
    """Of a family, or of one series of it."""
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((family + "{", family + " ")))


def target(pid, fd):
    try:
        return str(pathlib.Path(f"/proc/{pid}/fd/{fd}").readlink())
    except OSError:
        return ""


def children(storm):
    """The three routers, once they are up."""
    end = time.monotonic() + 60
    while time.monotonic() < end and storm.poll() is None:
        found = [pid for pid in procfs.family(storm.pid)[1:] if b"--config" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()]
        if len(found) == 3:
            time.sleep(2)
            return found
        time.sleep(0.1)
    sys.exit("soak: the storm did not start its routers")


def watch(storm, said, routers, stop, seconds):
    """Samples until the storm is over, and of its quiet end."""
    samples, began = [], time.monotonic()
    while storm.poll() is None:
        at = time.monotonic() - began
        quiet = said.quiet
        if at > seconds - SAMPLE_S:
            stop.set()
        try:
            said.faults += [line for router in routers for line in router.panics()]
            samples.append({"at": round(at, 1), "quiet": quiet, "routers": [router.sample() for router in routers]})
        except (OSError, KeyError, ValueError) as problem:
            if storm.poll() is None and not quiet:
                said.faults.append(f"no sample after {at:.0f} s: {problem!r}")
        time.sleep(max(SAMPLE_S - (time.monotonic() - began - at), 0.1))
    stop.set()
    return samples


def reloading(routers, done, stop):
    """Another configuration again and again; one time in four it has a mistake, which must change nothing."""
    dice = random.Random(2)
    while not stop.wait(RELOAD_S):
        broken = dice.random() < 0.25
        seed = dice.random()
        for router in routers:
            text = variant(router.text, random.Random(seed))
            fresh = router.config.with_suffix(".new")
            try:
                fresh.write_text(text.replace("threads: 1", "thraeds: 1") if broken else text)
                fresh.rename(router.config)
            except FileNotFoundError:
                # The storm ended before its time, and its files with it.
                return
        done["broken" if broken else "reloads"] += 1


def variant(text, dice):
    """A configuration with other limits and policies, and for the plain service a split, another one, or none."""
    limits = f"limits: {{ body: {dice.choice([8, 16, 64])}MiB, headers: {dice.choice([64, 100])}, in_flight: {dice.choice([0, 5000])} }}\n"
    policy = dice.choice(["round_robin", "least_in_flight", "power_of_two"])
    text = text.replace("    retries:", f"    policy: {{ prefill: {policy}, decode: {policy}, mixed: {policy} }}\n    retries:")
    if share := dice.choice([0, 1, 20, 50, 90]):
        plain = "    engine: { kind: plain }\n"
        weights = f"{{ revision: r1, weight: {share} }}, {{ revision: r2, weight: {100 - share} }}"
        text = text.replace(plain, f"{plain}    split: {{ weights: [{weights}] }}\n")
    return limits + text


def misbehaving(routers, done, stop):
    """What no client should send, five times a second: each is answered with 4xx, or its connection closed."""
    dice = random.Random(3)
    while not stop.wait(0.2):
        name = "%030x" % dice.getrandbits(120)
        head = "POST /v1/chat/completions HTTP/1.1\r\nHost: soak\r\nContent-Type: application/json\r\n"

        def body(text):
            return f"{head}Content-Length: {len(text)}\r\n\r\n{text}"
        words, allowed = dice.choice([
            (body(f'{{"model":"{name}","messages":[]}}'), "404"),
            (body('{"model":"plain","messages":['), "400"),
            (body('{"model":1}'), "400"),
            (body("\x00" * 50), "400"),
            (f"GET /{name} HTTP/1.1\r\nHost: soak\r\n\r\n", "404"),
            (f"{name} / HTTP/1.1\r\nHost: soak\r\n\r\n", "4.."),
            (f"{head}Content-Length: 5\r\nContent-Length: 6\r\n\r\n", "400"),
            (f"{head}Transfer-Encoding: gzip\r\n\r\n", "4.."),
            (f"{head}X-{name}: {name * 3000}\r\n\r\n", "431"),
            (f"{head}Content-Length: 900\r\n\r\n{{", "408"),
            (f"GET /v1/models HTTP/1.1\r\nHost: soak\r\nX-{name}: {name}\r\nX-Request-Id: {name}\r\n\r\n", "200"),
            ("\r\n\r\n", "4.."), ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + name, "h2"), (name[:3], "408"),
        ])
        answer = speak(dice.choice(routers).front, words, listens=dice.random() < 0.7)
        # Nothing, or a closed connection, is an answer to all of it.
        fits = answer in ("", "unheard") or re.fullmatch(allowed, answer)
        kind = answer if fits else f"{answer} to {words[:60]!r}"
        done["answers"][kind] = done["answers"].get(kind, 0) + 1
        done["garbage"] += 1


def speak(front, words, listens):
    """The status of the answer, `h2` for a frame of HTTP/2, empty for none within 2 s."""
    try:
        with socket.create_connection(front, 2) as client:
            client.settimeout(2)
            client.sendall(words.encode())
            if not listens:
                return "unheard"
            said = client.recv(4096)
    except OSError:
        return ""
    if said.startswith(b"HTTP/1.1 "):
        return said[9:12].decode(errors="replace")
    return "h2" if said[3:4] in (b"\x04", b"\x07") else repr(said[:40]) if said else ""


def judge(run):
    """What is wrong with a run: a list of sentences."""
    wrong = [f"the storm: {line}" for line in run["faults"]]
    if not any("contradictions" in line for line in run["storm"]):
        wrong.append("the storm did not come to its end")
    busy = [sample for sample in run["samples"] if not sample["quiet"] and WARM_UP * run["seconds"] <= sample["at"] < run["seconds"] - SAMPLE_S]
    quiet = [sample for sample in run["samples"] if sample["quiet"]]
    if len(busy) < 2 * PARTS or not quiet:
        return [*wrong, f"{len(busy)} samples under load and {len(quiet)} of the quiet end are too few"]
    wrong += answered(run)
    for number in range(len(busy[0]["routers"])):
        first, last = run["samples"][0]["routers"][number], quiet[-1]["routers"][number]
        found = growth(busy, number) + left_over(first, last) + reloads(run["beside"], last)
        wrong += [f"router {number}: {each}" for each in found]
    return wrong


def answered(run):
    """Answers that no fault explains."""
    found = [f"garbage: {count} × {kind}" for kind, count in run["beside"]["answers"].items() if " to " in kind]
    line = next((line for line in run["storm"] if line.startswith("| statuses")), "")
    statuses = {int(status): int(count) for status, count in re.findall(r"(\d+): (\d+)[,}]", line.rpartition("{")[2])}
    for status in sorted(set(statuses) - EXPLAINED):
        found.append(f"{statuses[status]} answers with {status}, which nothing explains")
    if statuses.get(200, 0) < WHOLE * sum(statuses.values()) or not statuses:
        found.append(f"too few whole answers: {statuses}")
    return found


def left_over(first, last):
    """What a router still has when nobody asks it any more; `first` is from the beginning, under load."""
    left = {name: last[name] for name in (*ZERO, "carried", "idle_upstream") if last[name]}
    found = [f"left over at the end: {left}"] if left else []
    if last["tasks"] > first["tasks"] + SLACK["tasks"]:
        found.append(f"{last['tasks']:.0f} tasks at the end, {first['tasks']:.0f} at the start")
    # Listeners, the API server's watches and what the runtimes have: all that were no connection of a client or to an engine.
    own = first["sockets"] - first["tandem_downstream_connections"] - first["idle_upstream"]
    if last["sockets"] > own + SLACK["sockets"]:
        found.append(f"{last['sockets']} sockets at the end, {own:.0f} at the start beside connections")
    # As many endpoints as at the start, at whatever addresses: what is more belongs to some that are gone.
    if last["endpoint_series"] > first["endpoint_series"] + SLACK["endpoint_series"]:
        found.append(f"{last['endpoint_series']} endpoint_series at the end, {first['endpoint_series']} at the start")
    return found


def reloads(beside, last):
    """Whether each configuration was taken over and each broken one refused: the quiet end is long enough for the last of them."""
    each = (("taken over", last["reloaded"], beside["reloads"]), ("refused", last["refused"], beside["broken"]))
    return [f"{seen:.0f} configurations {what} of {written}" for what, seen, written in each if seen != written]


def growth(busy, number):
    """Which figures of a router were not flat."""
    found = []
    for name, slack in SLACK.items():
        medians = parts(busy, number, name)
        middle = statistics.median(medians)
        most = max(middle * FLAT, slack)
        if any(abs(each - middle) > most for each in medians):
            found.append(f"{name} is not flat: {', '.join(f'{each:.0f}' for each in medians)}")
        elif (grown := slope(busy, number, name)) > most:
            found.append(f"{name} grows: {grown:.0f} by a straight line, {most:.0f} allowed: {', '.join(f'{each:.0f}' for each in medians)}")
    return found


def slope(busy, number, name):
    """What a figure gained over the judged part of the run, by the median of all slopes between two samples: no peak moves it."""
    points = [(sample["at"], sample["routers"][number][name]) for sample in busy[::max(1, len(busy) // 200)]]
    pairs = ((x, y) for n, x in enumerate(points) for y in points[n + 1:])
    each = [(after[1] - before[1]) / (after[0] - before[0]) for before, after in pairs if after[0] > before[0]]
    return statistics.median(each) * (points[-1][0] - points[0][0])


def parts(busy, number, name):
    """Medians of equal parts of the run."""
    size = len(busy) / PARTS
    cut = [busy[int(part * size):int((part + 1) * size)] for part in range(PARTS)]
    return [statistics.median(sample["routers"][number][name] for sample in part) for part in cut]


def show(run):
    """A table for the documentation: of each router the median of each part under load, and the quiet end."""
    busy = [sample for sample in run["samples"] if not sample["quiet"] and WARM_UP * run["seconds"] <= sample["at"] < run["seconds"] - SAMPLE_S]
    quiet = [sample for sample in run["samples"] if sample["quiet"]]
    if len(busy) < PARTS or not quiet:
        return
    print(f"| router | figure |{''.join(f' part {part + 1} |' for part in range(PARTS))} most | quiet end |")
    print("|---|---|" + "---|" * (PARTS + 2))
    for number in range(len(busy[0]["routers"])):
        for name in SLACK:
            cells = [f"{each:,.0f}" for each in parts(busy, number, name)]
            most = max(sample["routers"][number][name] for sample in busy)
            print(f"| {number} | {name} | {' | '.join(cells)} | {most:,.0f} | {quiet[-1]['routers'][number][name]:,.0f} |")
    print(f"\nreloads {run['beside']['reloads']}, broken ones {run['beside']['broken']}, garbage {run['beside']['garbage']}")
    print(f"answers to garbage: {run['beside']['answers']}")
    print("\n".join(run["storm"]))


if __name__ == "__main__":
    sys.exit(main())
