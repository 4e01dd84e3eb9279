#!/usr/bin/env python3
"""The same rollout under load for Tandem and for each peer that watches Pods: who mixes releases, and who loses requests.

    python3 load-tests/rollout.py --peers DIR     # about two minutes for each contender

Two prefills and ten decodes are replaced one by one (load-tests/rollout/). For everybody alike Pods leave by a deletion
time, which every router can see, and peers' engines are ended only after two seconds without work: more patience than a
cluster has. Peers have no pairing tokens; that is what the cross-cohort pairs count. DIR has a Python environment for each
peer or one for all: DIR/NAME/bin/python, or DIR/bin/python.
"""

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

from relay import build, machine, pairs, process

HERE = pathlib.Path(__file__).resolve().parent

DISCOVERY = [
    "--service-discovery", "--service-discovery-namespace", "default", "--service-discovery-port", "8000",
    "--prefill-selector", "app=llm", "tandem.dev/role=prefill", "--decode-selector", "app=llm", "tandem.dev/role=decode"]

#: Longest run of one contender, seconds.
LIMIT = 180


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=pathlib.Path, help="folder with the peers' Python environments")
    parser.add_argument("--contenders", help="comma-separated part of " + ",".join(pairs.NAMES))
    parser.add_argument("--tandem-bin", type=pathlib.Path, help="this binary in place of building one")
    parser.add_argument("--rollout-bin", type=pathlib.Path, help="the same for the driver")
    parser.add_argument("--profile", default="release", help="cargo profile of what is built (default release)")
    parser.add_argument("--rate", default="200")
    parser.add_argument("--seconds", default="20", help="steady load before the roll")
    parser.add_argument("--pause", default="1000", help="milliseconds between two engines")
    parser.add_argument("--realtime", action="store_true", help="on a shared machine, driver and router go before its "
                        "other programs, both at the same priority (needs root)")
    parser.add_argument("--rounds", type=int, default=1, help="of every contender, interleaved; the table has each")
    parser.add_argument("--out", type=pathlib.Path, default=HERE / "out" / "rollout.json")
    return parser.parse_args()


def programs(args):
    """Tandem, and the driver that has engines, API server and clients."""
    folder = build.target_dir() / build.folder(args.profile)
    tandem, rollout = args.tandem_bin, args.rollout_bin
    if tandem is None:
        build.cargo("--profile", args.profile, "--bin", "tandem")
        tandem = folder / "tandem"
    if rollout is None:
        build.cargo("--profile", args.profile, "--example", "rollout")
        rollout = folder / "examples" / "rollout"
    return tandem.resolve(), rollout.resolve()


def interpreter(name, folder):
    """The Python that has the peer, or None."""
    return next((path for path in pairs.interpreters(name, folder) if version(path, name)), None)


def version(python, name):
    return pairs.first_line([python, "-c", f"from importlib import metadata; print(metadata.version({name!r}))"])


def peer(name, python):
    """A peer's command line; settings as in relay/pairs.py, engines from Pods."""
    return [python, "-m", pairs.MODULES[name], "--host", "127.0.0.1", "--port", "{listen}",
            "--prometheus-host", "127.0.0.1", "--prometheus-port", "{admin}", "--policy", "round_robin",
            "--worker-startup-check-interval", "1", *pairs.EXTRA[name], *DISCOVERY]


def run(rollout, tandem, name, command, args, scratch):
    """One contender's figures, or what went wrong."""
    out = scratch / f"{name}.json"
    engine = "vllm" if "vllm" in name else "sglang"
    words = [str(rollout), "--engine", engine, "--withdraw", "delete", "--tandem", str(tandem), "--out", str(out),
             "--rate", args.rate, "--seconds", args.seconds, "--pause", args.pause]
    # A session of its own, so that the router goes too when it is cut off.
    driver = subprocess.Popen(words + (["--", *command] if command else []), stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True, start_new_session=True,
                              preexec_fn=process.before_others if args.realtime else None)
    try:
        _, said = driver.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.communicate()
        return {"failed": f"not over after {LIMIT} s"}
    return json.loads(out.read_text()) if out.exists() else {"failed": said.strip()[-400:]}


#: Titles, and where the values are.
COLUMNS = [
    ("requests", lambda r: r["requests"]),
    ("client errors", lambda r: r["client_errors"]),
    ("cross-cohort pairs", lambda r: r["engines"]["crossed"]),
    ("last request after a Pod's change, ms", lambda r: f"{r['engines']['last_begun_after_change_ms']:.0f}"),
    ("TTFT p50 before / during, ms", lambda r: f"{r['before']['ttft_p50_ms']:.1f} / {r['during']['ttft_p50_ms']:.1f}"),
    ("TTFT p99 before / during, ms", lambda r: f"{r['before']['ttft_p99_ms']:.1f} / {r['during']['ttft_p99_ms']:.1f}"),
    ("ratio", lambda r: f"{r['ttft_p99_ratio'] or 0:.2f}"),
    ("the roll, s", lambda r: f"{r['roll']['seconds']:.0f}"),
]


def table(results):
    lines = ["| | " + " | ".join(title for title, _ in COLUMNS) + " |", "|---" * (len(COLUMNS) + 1) + "|"]
    for name, result in results:
        if "failed" in result:
            lines.append(f"| {name} | failed: {result['failed']} |")
        else:
            lines.append(f"| {name} | " + " | ".join(str(value(result)) for _, value in COLUMNS) + " |")
    return "\n".join(lines)


def main():
    args = arguments()
    wanted = args.contenders.split(",") if args.contenders else list(pairs.NAMES)
    unknown = [name for name in wanted if name not in pairs.NAMES]
    if unknown:
        sys.exit(f"rollout: no such contender: {', '.join(unknown)}; there are {', '.join(pairs.NAMES)}")
    tandem, rollout = programs(args)
    results, commands, versions = [], {}, {}
    with tempfile.TemporaryDirectory(prefix="rollout-") as scratch:
        for name in wanted:
            command = None
            if name in pairs.MODULES:
                python = interpreter(name, args.peers)
                if not python:
                    print(f"rollout: {name} is not installed, left out", file=sys.stderr)
                    continue
                command, versions[name] = peer(name, python), version(python, name)
            commands[name] = command
        for number in range(args.rounds):
            for name, command in commands.items():
                results.append((name, run(rollout, tandem, f"{name}-{number}", command, args, pathlib.Path(scratch))))
                print(f"rollout: {name}, round {number + 1} of {args.rounds}, done", file=sys.stderr)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    document = {"machine": machine.describe(), "versions": versions,
                "results": [{"contender": name, **result} for name, result in results]}
    args.out.write_text(json.dumps(document, indent=1) + "\n")
    print(table(results))
    return 1 if any(wrong(result) for name, result in results if name not in pairs.MODULES) else 0


def wrong(result):
    """Tandem's own run has something in it that has to be zero, or none of it."""
    return "failed" in result or result["client_errors"] or result["engines"]["crossed"]


if __name__ == "__main__":
    sys.exit(main())
