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


def run_seconds(pid):
    """Time on a CPU of the threads alive now, to the nanosecond; None where the kernel does not say."""
    ran = 0
    for each in family(pid):
        for task in listing(f"/proc/{each}/task"):
            fields = text(f"/proc/{each}/task/{task}/schedstat").split()
            if not fields:
                return None
            ran += int(fields[0])
    return ran / 1e9


def busy_seconds(cpu):
    """Time that this CPU was used by anybody, or by another guest of its host. The grain is a clock tick."""
    for line in text("/proc/stat").splitlines():
        name, *fields = line.split()
        if name == f"cpu{cpu}":
            user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, fields[:8])
            return (user + nice + system + irq + softirq + steal) * TICK_S
    return 0.0


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
