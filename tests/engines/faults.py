"""Engines that are killed or stopped under load, and clients that leave: nobody gets a wrong text, nothing hangs, all comes back."""

import collections
import random
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from client import Answer, send
from prompts import varied
from texts import CONCURRENCY, wrong

POOL = varied(700, 24, 150)
AFTER = varied(900, 8, 24)
LEAVERS = varied(800, 32, 60)
# Longest time for any answer while an engine is missing. SGLang itself needs several seconds to notice a lost peer.
PATIENCE = 60
# A returned engine is used again at the latest after this many seconds.
SETTLED = 1.5


class Aborts:
    """Clients that leave."""

    @staticmethod
    def cases():
        return AFTER + LEAVERS

    @staticmethod
    def run(rig):
        leavers(rig)


class Lost:
    """The prefill or the decode is stopped, then killed."""

    def __init__(self, role):
        self.role = role

    @staticmethod
    def cases():
        return POOL + AFTER

    def run(self, rig):
        engine = rig.decode if self.role == "decode" else rig.prefill
        for number in (signal.SIGTERM, signal.SIGKILL):
            under_load(rig, engine, number)


def leavers(rig):
    """Clients that leave at any moment: before the prefill answers, at the first token, in the middle."""
    draw = random.Random(4)

    def leave(i):
        item = LEAVERS[i % len(LEAVERS)]
        when = draw.choice([0.01, 0.03, 0.1, 0.3, "1 events", "3 events", "20 events"])
        streaming = isinstance(when, str) or i % 2 == 0
        return send(rig.router.url, item.path, item.streamed(streaming).body, leave_after=when)

    with ThreadPoolExecutor(CONCURRENCY) as pool:
        answers = list(pool.map(leave, range(96)))
    left = sum(answer.cut == "left" for answer in answers)
    rig.report.check("client aborts: they left early", left > 60, f"{left} of {len(answers)}")
    rig.check_rest("client aborts: router at rest")
    rig.check_idle("client aborts: engines idle")
    healthy(rig, "after client aborts")


def healthy(rig, when):
    bad = []
    for i, item in enumerate(AFTER):
        if why := wrong(send(rig.router.url, item.path, item.streamed(i % 2 == 0).body), rig.expected(item)):
            bad.append(why)
    rig.report.check(f"right texts {when}", not bad, bad[:3])


class Load:
    """Clients in a loop until told to stop; remembers each answer."""

    def __init__(self, rig):
        self.rig, self.over, self.seen = rig, threading.Event(), []
        self.now = {}
        self.threads = [threading.Thread(target=self.loop, args=(i,)) for i in range(CONCURRENCY)]
        for thread in self.threads:
            thread.start()

    def loop(self, number):
        draw = random.Random(number)
        while not self.over.is_set():
            item = draw.choice(POOL)
            answer = self.now[number] = Answer()
            send(self.rig.router.url, item.path, item.streamed(draw.random() < 0.7).body, answer=answer)
            self.seen.append((item, answer))
            if not answer.ended_well():
                time.sleep(1)

    def wait_for_tokens(self):
        """Until some answers are complete and several streams are in their middle."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            moment = time.monotonic() - 0.3
            middle = sum(0 < answer.first < moment and not answer.seconds for answer in list(self.now.values()))
            if middle >= 4 and len(self.seen) >= CONCURRENCY:
                return
            time.sleep(0.02)

    def since(self, moment):
        return [answer for _, answer in self.seen if answer.began > moment]

    def stop(self):
        self.over.set()
        for thread in self.threads:
            thread.join()
        return self.seen


def under_load(rig, engine, number):
    name = f"{signal.Signals(number).name} of the {engine.role} under load"
    load = Load(rig)
    load.wait_for_tokens()
    at = time.monotonic()
    engine.signal(number)
    gone = engine.wait_gone(30)
    time.sleep(3)
    engine.start()
    engine.wait_ready()
    back = time.monotonic()
    while len(load.since(back + SETTLED)) < CONCURRENCY and time.monotonic() < back + PATIENCE:
        time.sleep(0.5)
    seen = load.stop()
    judge(rig, name, engine, seen, at, back)
    rig.report.note(f"{name}: gone after {gone:.1f} s, back after {back - at:.1f} s")
    rig.check_rest(f"{name}: router at rest")
    rig.check_idle(f"{name}: engines idle")
    healthy(rig, f"after {name}")


def judge(rig, name, engine, seen, at, back):
    report = rig.report
    ends = collections.Counter(answer.summary() for _, answer in seen)
    report.note(f"{name}: {dict(ends.most_common())}")
    lies = []
    for item, answer in seen:
        expected = rig.expected(item)
        if answer.ended_well() and (why := wrong(answer, expected)):
            lies.append(why)
        elif not expected.text.startswith(answer.text):
            lies.append(f"partial text {answer.text[:40]!r} instead of {expected.text[:40]!r}")
    report.check(f"{name}: nobody got a wrong text", not lies, f"{len(seen)} answers, {lies[:3]}")
    longest = max(answer.seconds for _, answer in seen)
    report.check(f"{name}: nobody waited for ever", longest < PATIENCE, f"longest {longest:.1f} s")
    untold = [a.summary() for _, a in seen if a.status == 0 or a.status == 200 and a.cut and a.error is None]
    report.check(f"{name}: every failure has an error", not untold, f"{untold[:3]}")
    if engine.role == "prefill":
        running = [a for _, a in seen if a.first and a.first < at - 0.2 and a.began + a.seconds > at]
        bad = [a.summary() for a in running if not a.ended_well()]
        report.check(f"{name}: streams with tokens went on", running and not bad, f"{len(running)} were running; {bad[:3]}")
    later = [a for _, a in seen if a.began > back + SETTLED]
    bad = [a.summary() for a in later if not a.ended_well()]
    report.check(f"{name}: served again once it was back", later and not bad, f"{len(later)} answers; {bad[:3]}")
    report.check(f"{name}: the router lived", rig.router.alive() and not rig.router.panics(rig.folder, rig.kind), "")
