"""The machine: what it is, and whether it can carry the measurement."""

import os
import platform
import resource
import sys


def require(cpus):
    """Leaves with a message unless this is Linux with these CPUs; raises the descriptor limit as far as allowed."""
    if not sys.platform.startswith("linux"):
        sys.exit("compare: CPU and memory are read from /proc, which only Linux has")
    missing = cpus - os.sched_getaffinity(0)
    if missing:
        sys.exit(f"compare: no CPU {sorted(missing)} here; choose with --router-cpu and --load-cpu")
    if len(cpus) < 2:
        sys.exit("compare: router and load need a CPU each, or they are measured waiting for each other")
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def descriptors():
    """Descriptors a child may open."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def describe():
    return {
        "kernel": platform.release(),
        "cpu": cpu_model(),
        "cpus": os.cpu_count(),
        "descriptors": descriptors(),
        "load_average": os.getloadavg(),
    }


def cpu_model():
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")
