"""Builds the router and the two ends, and says where they are."""

import json
import pathlib
import subprocess
import sys
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Tools:
    engine: pathlib.Path
    loadgen: pathlib.Path
    tandem: "pathlib.Path | None"


def tools(args, needs_tandem):
    """The programs, built unless `--no-build`.

    The router is built alone: in one command with the examples it would get the features of the tests as well. The ends
    are always `quick`, they are not what is measured.
    """
    tandem = args.tandem_bin
    if tandem is None and needs_tandem:
        tandem = target_dir() / folder(args.profile) / "tandem"
        if not args.no_build:
            cargo("--profile", args.profile, "--bin", "tandem")
    if not args.no_build:
        cargo("--profile", "quick", "--example", "fake_engine", "--example", "loadgen")
    ends = target_dir() / "quick" / "examples"
    found = Tools(ends / "fake_engine", ends / "loadgen", tandem.resolve() if tandem else None)
    for path in (found.engine, found.loadgen, found.tandem):
        if path and not path.exists():
            sys.exit(f"compare: {path} is not there; build it, or leave out --no-build")
    return found


def cargo(*words):
    if subprocess.run(["cargo", "build", "--locked", *words], cwd=ROOT, check=False).returncode != 0:
        sys.exit("compare: the build failed")


def folder(profile):
    return "debug" if profile == "dev" else profile


def target_dir():
    words = ["cargo", "metadata", "--format-version", "1", "--no-deps", "--offline"]
    return pathlib.Path(json.loads(subprocess.check_output(words, cwd=ROOT))["target_directory"])
