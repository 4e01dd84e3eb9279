"""Is the soak's judge able to say no? Each rule sees one run that breaks it. `python3 load-tests/soak_test.py`, part of smoke.sh."""

import copy
import pathlib
import random
import tempfile
import unittest

import soak

STEADY = {
    "rss_kib": 28000, "sockets": 50, "files": 15, "threads": 7, "tasks": 50.0, "series": 800, "endpoint_series": 550,
    "idle_upstream": 14.0, "carried": 2.0, "cpu_s": 1.0, "reloaded": 3.0, "refused": 1.0,
    "tandem_requests_in_flight": 2.0, "tandem_buffered_bytes": 200.0, "tandem_downstream_connections": 20.0,
}
REST = STEADY | {"sockets": 15, "tasks": 25.0, "idle_upstream": 0.0, "carried": 0.0} | dict.fromkeys(soak.ZERO, 0.0)
STORM = [
    "| requests, outcomes | 1000, 1000 |",
    "| statuses (0: the client left, 1: the answer was cut) | {0: 20, 1: 2, 200: 960, 500: 8, 503: 10} |",
    "| contradictions (R5) | 0 |",
]


def run():
    """A clean run of an hour."""
    samples = [{"at": float(at), "quiet": False, "routers": [dict(STEADY)]} for at in range(0, 3600, 5)]
    samples += [{"at": float(at), "quiet": True, "routers": [dict(REST)]} for at in range(3600, 3630, 5)]
    beside = {"reloads": 3, "broken": 1, "garbage": 10, "answers": {"400": 6, "": 2, "unheard": 2}}
    return {"seconds": 3600, "samples": samples, "beside": beside, "storm": list(STORM), "faults": []}


def shaped(name, value):
    """A clean run, but for one figure under load: what `value` makes of the time."""
    each = run()
    for sample in each["samples"]:
        if not sample["quiet"]:
            sample["routers"][0][name] = value(sample["at"])
    return each


def ended(name, value):
    """A clean run, but for one figure of the last sample."""
    each = run()
    each["samples"][-1]["routers"][0][name] = value
    return each


class Judge(unittest.TestCase):
    def finds(self, each, *words):
        wrong = soak.judge(each)
        self.assertEqual(len(wrong), 1, wrong)
        for word in words:
            self.assertIn(word, wrong[0])

    def test_a_clean_run_passes(self):
        self.assertEqual(soak.judge(run()), [])

    def test_a_step_is_seen_in_every_figure(self):
        for name, slack in soak.SLACK.items():
            more = max(STEADY[name] * soak.FLAT, slack) * 2 + 2
            self.finds(shaped(name, lambda at: STEADY[name] + (more if at > 1500 else 0)), f"{name} is not flat")

    def test_a_slow_leak_within_the_band_is_seen_by_its_slope(self):
        # 9 % from the first judged part to the last: each lies within 5 % of the middle.
        self.finds(shaped("rss_kib", lambda at: 28000 * (1 + 0.10 * at / 3600)), "rss_kib grows")

    def test_noise_and_what_fills_in_the_warm_up_are_no_growth(self):
        noisy = shaped("rss_kib", lambda at: 28000 + (900 if at % 15 else -900) - (9000 if at < 500 else 0))
        self.assertEqual(soak.judge(noisy), [])

    def test_a_single_peak_is_no_growth(self):
        self.assertEqual(soak.judge(shaped("sockets", lambda at: 400 if 2000 < at < 2100 else 50)), [])

    def test_whatever_is_left_at_the_end_is_seen(self):
        for name in (*soak.ZERO, "carried", "idle_upstream"):
            self.finds(ended(name, 1.0), "left over", name)

    def test_sockets_and_tasks_that_nobody_owns_are_seen(self):
        # 50 less 20 clients and 14 to engines: the router's own.
        self.assertEqual(soak.judge(ended("sockets", 16 + soak.SLACK["sockets"])), [])
        self.finds(ended("sockets", 17 + soak.SLACK["sockets"]), "sockets at the end")
        self.finds(ended("tasks", STEADY["tasks"] + soak.SLACK["tasks"] + 1), "tasks at the end")

    def test_series_of_endpoints_that_are_gone_are_seen(self):
        most = STEADY["endpoint_series"] + soak.SLACK["endpoint_series"]
        self.assertEqual(soak.judge(ended("endpoint_series", most)), [])
        self.finds(ended("endpoint_series", most + 1), "endpoint_series at the end")

    def test_a_reload_that_was_lost_or_a_mistake_that_was_taken_over_is_seen(self):
        self.finds(ended("reloaded", 2.0), "2 configurations taken over of 3")
        self.finds(ended("reloaded", 4.0), "4 configurations taken over of 3")
        self.finds(ended("refused", 0.0), "0 configurations refused of 1")

    def test_answers_that_nothing_explains_are_seen(self):
        each = run()
        each["storm"][1] = STORM[1].replace("8, 503", "8, 501: 1, 503")
        self.finds(each, "1 answers with 501")
        each = run()
        each["storm"][1] = STORM[1].replace("960", "300")
        self.finds(each, "too few whole answers")
        each = run()
        each["beside"]["answers"]["200 to 'GET'"] = 1
        self.finds(each, "garbage: 1")

    def test_a_storm_that_found_something_or_did_not_end_is_seen(self):
        each = run()
        each["faults"].append("thread 'traffic-0' panicked at src/x.rs")
        self.finds(each, "panicked")
        each = run()
        each["storm"].pop()
        self.finds(each, "did not come to its end")

    def test_too_few_samples_are_no_verdict(self):
        for keep in (lambda sample: sample["quiet"], lambda sample: not sample["quiet"]):
            each = copy.deepcopy(run())
            each["samples"] = [sample for sample in each["samples"] if keep(sample)]
            self.finds(each, "too few")


class Variant(unittest.TestCase):
    def test_a_split_comes_goes_and_changes_for_the_plain_service_alone(self):
        text = "services:\n  - name: plain\n    engine: { kind: plain }\n    retries: { floor: 1 }\n" \
            "  - name: rooms\n    engine: { kind: sglang }\n    retries: { floor: 1 }\n"
        seen = set()
        for seed in range(60):
            made = soak.variant(text, random.Random(seed))
            splits = [line for line in made.splitlines() if "split:" in line]
            seen.add(tuple(splits))
            self.assertEqual(made.count("policy:"), 2)
            if splits:
                self.assertIn("    engine: { kind: plain }\n" + splits[0] + "\n", made)
        self.assertEqual(sorted(map(len, seen)), [0, 1, 1, 1, 1])


class Log(unittest.TestCase):
    def test_a_panic_is_told_once_also_when_its_line_comes_in_two_pieces(self):
        with tempfile.TemporaryDirectory() as folder:
            router = object.__new__(soak.Router)
            router.log, router.read = pathlib.Path(folder) / "log", 0
            router.log.write_text("WARN nothing\nthread 'traffic-0' pani")
            self.assertEqual(router.panics(), [])
            with router.log.open("a") as log:
                log.write("cked at src/x.rs:1\nINFO on\n")
            self.assertEqual(router.panics(), ["thread 'traffic-0' panicked at src/x.rs:1"])
            self.assertEqual(router.panics(), [])


class Series(unittest.TestCase):
    def test_a_family_a_series_of_it_and_one_without_labels_are_summed(self):
        lines = ['a{x="1"} 2', 'a{x="2"} 3', "a_b 7", "b 4"]
        found = [soak.total(lines, name) for name in ("a", 'a{x="2"}', "b", "c")]
        self.assertEqual(found, [5.0, 3.0, 4.0, 0])


if __name__ == "__main__":
    unittest.main()
