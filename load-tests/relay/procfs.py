"""CPU time and memory of a process and its children, from /proc."""

import os

TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def family(pid):
    """The process and all that descend from it."""
    found = [pid]
    for each in found:
        for task in listing(f"/proc/{each}/task"):
            found += [int(child) for child in text(f"/proc/{each}/task/{task}/children").split()]
    return found


def cpu_seconds(pid):
    """User and system time of all threads, dead ones too. The grain is a clock tick (10 ms)."""
    total = 0.0
    for each in family(pid):
        fields = text(f"/proc/{each}/stat").rpartition(")")[2].split()
        if fields:
            total += (int(fields[11]) + int(fields[12])) * TICK_S
    return total


def run_and_wait(pid):
    """Seconds on a CPU, and seconds ready but kept waiting for one, of the threads alive now.

    To the nanosecond; None where the kernel does not say.
    """
    ran = waited = 0
    for each in family(pid):
        for task in listing(f"/proc/{each}/task"):
            fields = text(f"/proc/{each}/task/{task}/schedstat").split()
            if not fields:
                return None
            ran += int(fields[0])
            waited += int(fields[1])
    return ran / 1e9, waited / 1e9


def memory_kib(pid):
    """Resident memory now and at its highest, in KiB."""
    now = peak = 0
    for each in family(pid):
        lines = dict(line.split(":", 1) for line in text(f"/proc/{each}/status").splitlines() if ":" in line)
        now += kib(lines, "VmRSS")
        peak += kib(lines, "VmHWM")
    return now, peak


def kib(lines, key):
    return int(lines.get(key, "0 kB").split()[0])


def listing(path):
    try:
        return os.listdir(path)
    except OSError:
        return []


def text(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
