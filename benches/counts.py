#!/usr/bin/env python3
"""Counts the instructions of single steps of the request path and compares them with what they were.

    python3 benches/counts.py             # exit code 1: a step takes over 10 % more than benches/counts.json says
    python3 benches/counts.py --update    # what it found becomes benches/counts.json: commit that with the reason
    python3 benches/counts.py --only select/    # steps whose names begin so, to look at

Steps: benches/counts/. Callgrind writes one dump for each into target/callgrind. Needs valgrind and cargo;
Python 3.9 or newer. Why like this: docs/decisions/0012-instruction-counts.md.
"""

import argparse
import json
import pathlib
import platform
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
DUMPS = ROOT / "target" / "callgrind"
# The function that is counted, with all it calls, and the one that ends it (benches/counts/bench.rs).
PART, END = "*counted_part*", "*end_of_part*"
# Most a step may take of what it took.
MOST = 1.10
# So many instructions more are no news in any step: a step of a dozen would be judged by one.
SLACK = 4


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--update", action="store_true", help="write the reference")
    parser.add_argument("--only", default="", help="steps whose names begin so")
    parser.add_argument("--reference", type=pathlib.Path, default=ROOT / "benches" / "counts.json")
    parser.add_argument("--measured", type=pathlib.Path, help="compare these counts, in the form of the reference, and measure nothing")
    return parser.parse_args()


def main():
    args = arguments()
    if args.measured:
        found = json.loads(args.measured.read_text())
    else:
        found = {"made_with": made_with(), "counts": measure(build(), args.only)}
    if args.update and not args.only:
        args.reference.write_text(json.dumps(found, indent=1) + "\n")
        print(f"counts: {len(found['counts'])} steps written to {args.reference}")
        return 0
    reference = json.loads(args.reference.read_text())
    for what, version in reference["made_with"].items():
        here = found["made_with"].get(what)
        if here != version:
            print(f"counts: the reference was made with {what} {version}, this is {here}: some difference may be theirs")
    before = {name: count for name, count in reference["counts"].items() if name.startswith(args.only)}
    return compare(before, found["counts"])


def compare(before, now):
    """Prints the table; the exit code."""
    wrong, better = [], []
    print(f"{'instructions for each':46} {'before':>11} {'now':>11}")
    for name in list(before) + [name for name in now if name not in before]:
        old, new = before.get(name), now.get(name)
        mark = ""
        if old is None or new is None:
            mark = "  not in the reference" if old is None else "  not measured"
            wrong.append(name)
        elif new > max(old * MOST, old + SLACK):
            mark = "  MORE"
            wrong.append(name)
        elif old > max(new * MOST, new + SLACK):
            better.append(name)
        ratio = f"{new / old:7.3f}" if old and new else ""
        print(f"{name:46} {shown(old)} {shown(new)} {ratio}{mark}")
    if better:
        print(f"counts: {len(better)} over 10 % better; --update keeps them so")
    if wrong:
        print(f"counts: not within 10 % of the reference: {'; '.join(wrong)}\n"
              "counts: if that is meant, run `python3 benches/counts.py --update` and commit benches/counts.json with the reason")
        return 1
    return 0


def shown(count):
    return f"{count:11,.1f}" if count is not None else f"{'-':>11}"


def build():
    """The bench's program."""
    command = ["cargo", "bench", "--quiet", "--no-run", "--profile", "counts", "--bench", "counts", "--message-format", "json"]
    out = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    made = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    programs = [each["executable"] for each in made if each.get("target", {}).get("name") == "counts" and each.get("executable")]
    if not programs:
        sys.exit("counts: cargo built no bench named counts")
    return programs[-1]


def measure(program, only):
    """Instructions of each step, in the order of the steps."""
    if not shutil.which("valgrind"):
        sys.exit("counts: valgrind is missing; on Debian: apt-get install valgrind")
    shutil.rmtree(DUMPS, ignore_errors=True)
    DUMPS.mkdir(parents=True)
    command = ["valgrind", "--quiet", "--tool=callgrind", f"--callgrind-out-file={DUMPS}/dump",
               f"--toggle-collect={PART}", f"--dump-before={END}", program, "--once", only]
    out = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    steps = [line.rsplit("\t", 1) for line in out.splitlines()]
    counts = {}
    for number, (name, times) in enumerate(steps, 1):
        dump = (DUMPS / f"dump.{number}").read_text()
        total = re.search(r"^(?:totals|summary): (\d+)", dump, re.MULTILINE)
        # None at all: the function was inlined, or is called something else.
        if not total or int(total[1]) == 0:
            sys.exit(f"counts: nothing was counted for {name}")
        counts[name] = round(int(total[1]) / int(times), 1)
    if (DUMPS / f"dump.{len(steps) + 1}").exists():
        sys.exit("counts: more was counted than steps were named")
    return counts


def made_with():
    """What the figures depend on besides the code."""
    def first(*command):
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[0]

    flags = re.search(r"^flags\s*:\s*(.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    vector = "avx2" if flags and "avx2" in flags[1].split() else platform.machine()
    return {"rustc": first("rustc", "--version"), "libc": " ".join(platform.libc_ver()),
            "valgrind": first("valgrind", "--version"), "processor": vector}


if __name__ == "__main__":
    sys.exit(main())
