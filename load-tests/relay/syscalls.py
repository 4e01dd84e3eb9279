"""System calls of a router by name: the kernel counts them where it lets perf ask, else strace does.

perf's counters slow a call by some tenths of a microsecond. strace stops the router twice for each call, so events pile up
meanwhile and share calls: its figures of streams are too low, and a run says which of the two it was.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import time

from . import procfs

#: Every call, whatever its name.
ALL = "raw_syscalls:sys_enter"
EVENTS = "syscalls:sys_enter_"
#: What relays are known to call. A counter for each call there is would take perf seconds to set up and to take down.
NAMES = ("read", "write", "readv", "writev", "recvfrom", "sendto", "recvmsg", "sendmsg", "splice", "epoll_wait", "epoll_pwait",
         "epoll_ctl", "accept4", "connect", "socket", "close", "getsockopt", "setsockopt", "futex", "clock_gettime",
         "getrandom", "sched_yield", "clock_nanosleep", "timerfd_settime", "mmap", "munmap", "madvise", "brk", "getrusage")


def tool():
    """`perf`, `strace` or None: what there is here."""
    if shutil.which("perf"):
        words = ["perf", "stat", "-x,", "-e", EVENTS + "read", "true"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode == 0 and "not" not in done.stderr:
            return "perf"
    return "strace" if shutil.which("strace") else None


@contextlib.contextmanager
def counted(pid, which, scratch):
    """Counts the calls of a process and its children while the block runs; after it they are in the dictionary, with `all`."""
    counts, said = {}, scratch / "syscalls"
    pids = list(map(str, procfs.family(pid)))
    with perf(pids, said) if which == "perf" else strace(pids, said):
        yield counts
    counts |= READERS[which](said.read_text().splitlines())


@contextlib.contextmanager
def perf(pids, said):
    """perf with its counters off until it says that they are on."""
    (order, orders), (answers, answer) = os.pipe(), os.pipe()
    events = ",".join([ALL, *(EVENTS + name for name in NAMES)])
    words = ["perf", "stat", "-x,", "-o", str(said), "-e", events, "-D", "-1", "--control", f"fd:{order},{answer}",
             "-p", ",".join(pids)]
    process = subprocess.Popen(words, pass_fds=(order, answer), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.close(order)
    os.close(answer)
    try:
        for word in "enable", "disable":
            os.write(orders, word.encode() + b"\n")
            if not os.read(answers, 16):
                raise RuntimeError("perf left at once")
            if word == "enable":
                yield
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)
        os.close(orders)
        os.close(answers)


@contextlib.contextmanager
def strace(pids, said):
    """strace on every thread."""
    words = ["strace", "-f", "-c", "-o", str(said), *(word for pid in pids for word in ("-p", pid))]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 10
        while not traced(pids):
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError("strace does not attach")
            time.sleep(0.02)
        yield
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


def traced(pids):
    """Whether every thread has a tracer."""
    states = [procfs.text(f"/proc/{pid}/task/{task}/status") for pid in pids for task in procfs.listing(f"/proc/{pid}/task")]
    return all("TracerPid:\t0\n" not in state for state in states)


def of_perf(lines):
    """`COUNT,,syscalls:sys_enter_NAME,…`"""
    rows = [line.split(",") for line in lines if ALL in line or EVENTS in line]
    counts = {row[2].removeprefix(EVENTS): int(row[0]) for row in rows if row[0].isdigit()}
    return {"all": counts.pop(ALL), **{name: count for name, count in counts.items() if count}}


def of_strace(lines):
    """`% SECONDS USECS CALLS [ERRORS] NAME` between two lines of dashes."""
    rows = [line.split() for line in lines[2:] if line[:1] == " "]
    counts = {row[-1]: int(row[3]) for row in rows}
    return {"all": sum(counts.values()), **counts}


READERS = {"perf": of_perf, "strace": of_strace}
