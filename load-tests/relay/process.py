"""Children: on their CPU and at their priority, listening, and gone at the end."""

import contextlib
import os
import signal
import socket
import subprocess
import time


def placed(cpu, realtime, may_wait):
    """What a child does before it becomes its program: go to its CPU and its priority.

    The router is alone on its CPU and can have the real-time class. Engine and generator share one: there it would let
    the one that runs starve the other (`may_wait`).
    """
    def place():
        os.sched_setaffinity(0, {cpu})
        if realtime and may_wait:
            os.setsid()
            before_others()
        elif realtime:
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    return place


def before_others():
    """The highest priority for this process and its session."""
    os.setpriority(os.PRIO_PROCESS, 0, -20)
    # Where the kernel shares CPUs by session first, a priority counts inside the session only.
    with contextlib.suppress(OSError), open("/proc/self/autogroup", "w", encoding="ascii") as group:
        group.write("-20")


@contextlib.contextmanager
def running(command, place, output):
    """A process put in its `place`, asked to leave at the end and killed if it stays."""
    with open(output, "wb") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=out if output.suffix == ".out" else subprocess.DEVNULL,
            stdin=subprocess.DEVNULL, preexec_fn=place)
    process.output = output
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_for(port, process):
    """Until something listens on `port`."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        if process.poll() is not None:
            said = process.output.read_bytes().decode(errors="replace").strip()[-400:]
            raise RuntimeError(f"left at once with {process.returncode}: {said}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.2):
            return
        time.sleep(0.02)
    raise RuntimeError(f"does not listen on port {port} after 30 s")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
