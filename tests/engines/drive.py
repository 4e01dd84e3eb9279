"""Drives a real engine alone and then as a prefill/decode pair behind the router: drive.py KIND DIR ROUTER [PART...]

Runs in a network namespace of its own (run.sh). Parts: texts, keys, faults; all without any.
"""

import pathlib
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import faults
import keys
import texts
from client import send
from engines import Engine
from report import Report
from router import Router

PARTS = {
    "texts": texts,
    "keys": keys,
    "aborts": faults.Aborts,
    "decode": faults.Lost("decode"),
    "prefill": faults.Lost("prefill"),
}
# After its clients are gone an engine may take this long to notice (SGLang looks for closed sockets every 4 s).
IDLE_LIMIT = 15


class Rig:
    def __init__(self, kind, folder, program):
        self.kind, self.folder, self.program = kind, folder, program
        self.report = Report(kind)
        self.prefill, self.decode = Engine(kind, "prefill", folder), Engine(kind, "decode", folder)
        self.answers, self.alone, self.router = {}, {}, None

    def learn(self, parts):
        """The right answers, from one engine that does everything itself."""
        engine = Engine(self.kind, "whole", self.folder)
        engine.start()
        try:
            engine.wait_ready()
            wanted = [item for part in parts if part != "keys" for item in PARTS[part].cases()]
            with ThreadPoolExecutor(4) as pool:
                got = pool.map(lambda item: send(engine.url, item.path, item.streamed(False).body), wanted)
                self.answers = {item.key(): answer for item, answer in zip(wanted, got)}
            bad = [answer.summary() for answer in self.answers.values() if not answer.ended_well()]
            self.report.check("one engine alone answers", not bad, f"{len(wanted)} requests {bad[:3]}")
            if "keys" in parts:
                self.alone = keys.ask(engine.url, self.kind)
        finally:
            engine.stop()

    def start(self):
        self.prefill.start()
        self.decode.start()
        self.prefill.wait_ready()
        self.decode.wait_ready()
        self.router = Router(self.program, self.kind, self.folder)

    def stop(self):
        for part in (self.router, self.prefill, self.decode):
            if part is not None:
                part.stop()

    def expected(self, item):
        return self.answers[item.key()]

    def engines_alive(self):
        return self.prefill.alive() and self.decode.alive()

    def restart_dead(self):
        for engine in (self.prefill, self.decode):
            if not engine.alive():
                engine.stop()
                engine.start()
                engine.wait_ready()

    def transferred(self):
        """What the engines' own counters say of transfers so far."""
        if self.kind == "vllm":
            names = ("vllm:external_prefix_cache_hits_total", "vllm:nixl_num_failed_transfers_total")
            return [self.decode.counter(name) for name in names]
        failed = sum(engine.counter("sglang:num_transfer_failed_reqs_total") for engine in (self.prefill, self.decode))
        return [self.prefill.counter(f"sglang:kv_transfer_total_mb_{part}") for part in ("count", "sum")] + [failed]

    def check_transfers(self, name, before, prompt_tokens, requests):
        time.sleep(1)
        after = self.transferred()
        rise = [b - a for a, b in zip(before, after)]
        if self.kind == "vllm":
            good = rise == [prompt_tokens, 0]
        else:
            # Layers x (key, value) x heads x width x two bytes.
            megabytes = prompt_tokens * 2 * 2 * 2 * 32 * 2 / 2**20
            good = rise[0] == requests and abs(rise[1] - megabytes) < 0.02 * megabytes and rise[2] == 0
        self.report.check(name, good, f"{requests} requests, {prompt_tokens} prompt tokens; counters rose by {rise}")

    def check_rest(self, name):
        left = self.router.at_rest(10)
        self.report.check(name, left == 0, f"{left:g} left")

    def running(self):
        if self.kind == "vllm":
            names = ("vllm:num_requests_running", "vllm:num_requests_waiting")
            return sum(engine.counter(name) for engine in (self.prefill, self.decode) for name in names)
        queues = (
            "num_running_reqs num_queue_reqs num_prefill_bootstrap_queue_reqs num_prefill_inflight_queue_reqs "
            "num_decode_prealloc_queue_reqs num_decode_transfer_queue_reqs"
        ).split()
        return sum(engine.counter(f"sglang:{name}") for engine in (self.prefill, self.decode) for name in queues)

    def check_idle(self, name):
        began = time.monotonic()
        while (left := self.running()) and time.monotonic() - began < IDLE_LIMIT:
            time.sleep(0.1)
        self.report.check(name, left == 0, f"after {time.monotonic() - began:.1f} s, {left:g} left")


def main():
    kind, folder, program = sys.argv[1], pathlib.Path(sys.argv[2]).resolve(), sys.argv[3]
    parts = sys.argv[4:] or list(PARTS)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    rig = Rig(kind, folder, program)
    try:
        rig.learn(parts)
        rig.start()
        for part in parts:
            if part == "keys":
                keys.run(rig, rig.alone)
            else:
                PARTS[part].run(rig)
    finally:
        rig.stop()
    rig.report.close(folder / f"results.{kind}.json")


if __name__ == "__main__":
    main()
