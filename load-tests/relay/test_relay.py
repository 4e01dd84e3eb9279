"""What can be wrong without a router being asked: draws, command lines, what is compared with what, how counts are read.

    python3 -m unittest discover -s load-tests/relay -t load-tests
"""

import pathlib
import statistics
import tempfile
import unittest

from relay import contenders, measure, pairs, report, shapes, syscalls, traces

PORTS = contenders.Ports(1, 2, (11, 12), (21, 22))


class Traces(unittest.TestCase):
    def test_descriptions_are_quantiles_of_what_they_say(self):
        for name in traces.READERS:
            trace = traces.description(name)
            for what in ("gap", "input_tokens", "output_tokens"):
                if trace[what] is not None:
                    self.assertEqual(len(trace[what]), len(traces.POINTS), (name, what))
                    self.assertEqual(trace[what], sorted(trace[what]), (name, what))

    def test_draws_have_the_trace_s_means_and_the_rate_asked_for(self):
        for name in traces.READERS:
            trace, drawn = traces.description(name), traces.draw(name, 50, 1000)
            prompts, answers = (statistics.mean(each[at] for each in drawn) for at in (1, 2))
            self.assertAlmostEqual(len(drawn) / 1000 / 50, 1, delta=0.03)
            self.assertAlmostEqual(prompts / trace["mean_input_tokens"], 1, delta=0.03)
            self.assertAlmostEqual(answers / trace["mean_output_tokens"], 1, delta=0.03)

    def test_every_contender_gets_the_same_requests(self):
        self.assertEqual(traces.draw("azure", 80, 2), traces.draw("azure", 80, 2))
        self.assertNotEqual(traces.draw("azure", 80, 2), traces.draw("azure", 80, 2, seed=2))

    def test_a_schedule_is_what_the_generator_reads(self):
        self.assertEqual(traces.schedule([(0.0, 100, 3), (1.5, 10, 1)]), "0 400 3\n1500000 40 1\n")

    def test_a_published_file_becomes_its_description(self):
        lines = ["TIMESTAMP,ContextTokens,GeneratedTokens",
                 *(f"2023-11-16 18:15:{second:02}.0000000,{second * 10},{second + 1}" for second in range(51))]
        found = traces.describe("azure", lines)
        self.assertEqual((found["requests"], found["seconds"], found["rank_correlation"]), (51, 50, 1))
        self.assertEqual((found["input_tokens"][0], found["input_tokens"][25], found["input_tokens"][-1]), (0, 250, 500))
        self.assertEqual(set(found["gap"]), {1.0})
        self.assertIsNone(traces.describe("mooncake", ['{"timestamp": 0, "input_length": 1, "output_length": 2}',
                                                       '{"timestamp": 3000, "input_length": 2, "output_length": 1}'])["gap"])


class CommandLines(unittest.TestCase):
    def test_every_router_is_told_of_every_engine_in_its_own_way(self):
        told = {"tandem-sglang": "http://127.0.0.1:22,bootstrap=22", "tandem-vllm": "http://127.0.0.1:22",
                "sglang-router": "http://127.0.0.1:22 22", "smg": "http://127.0.0.1:22 22", "vllm-router": "http://127.0.0.1:22"}
        for name, prefill in told.items():
            command = " ".join(pairs.Pair(name).command(None, PORTS, None)[0])
            self.assertIn(f"--prefill {prefill} --decode http://127.0.0.1:11 --decode http://127.0.0.1:12", command)
            self.assertIn("--prefill http://127.0.0.1:21", command)

    def test_only_direct_pairs_make_the_generator_send_both_legs(self):
        self.assertEqual(pairs.Pair("direct-vllm").legs(PORTS),
                         ["--legs", "vllm", "--prefill", "127.0.0.1:21", "--prefill", "127.0.0.1:22"])
        self.assertEqual((pairs.Pair("tandem-vllm").legs(PORTS), contenders.Contender("haproxy").legs(PORTS)), ([], []))

    def test_who_runs_what(self):
        def runs(name):
            shape, = shapes.table(True, [name])
            return {each.name for each in contenders.everybody() if each.runs(shape)}

        self.assertEqual(runs("prompt-1m"), {"direct", "haproxy", "nginx", "envoy", "tandem"})
        self.assertEqual(runs("pd-chat"), {"haproxy", *pairs.NAMES})
        # Latency that is added needs a floor for one leg too.
        for name in ("pd-open", "azure", "mooncake"):
            self.assertEqual(runs(name), {"direct", "haproxy", *pairs.NAMES}, name)


class Verification(unittest.TestCase):
    def test_every_engine_has_to_have_its_part(self):
        right = measure.Bench.right_legs
        self.assertEqual(right("vllm", 7, PORTS), {"one_leg": 0, "sglang": 0, "vllm": 7, "breaches": {}, "open": 0,
                                                   "prefills": 2, "decodes": 2})
        self.assertEqual((right("one_leg", 7, PORTS)["one_leg"], right("one_leg", 7, PORTS)["prefills"]), (7, 0))


class Tables(unittest.TestCase):
    def row(self, unit, figures, name):
        """The columns of `name` in a table of two legs made of one cell each."""
        shape = {"name": "s", "what": "w", "unit": unit, "pd": True}
        cells = [{"shape": "s", "contender": each, "us_per_request": cost, "us_per_event": cost / 10, "busy": 0.5, "taken": 0.0,
                  "rss_peak_kib": 1024, "load": {"requests": 2, "events": 20, "wall_s": 1.0, "requests_per_s": 2.0,
                                                 **{kind: {"p50": latency, "p99": 2 * latency} for kind in
                                                    ("latency_us", "ttft_us", "start_late_us")}}}
                 for each, (cost, latency) in figures.items()]
        wires = {each: "vllm" if "vllm" in each else "sglang" if each not in ("direct", "haproxy") else "one_leg" for each in figures}
        result = {"contenders": dict.fromkeys(figures), "wires": wires, "peers": ["sglang-router", "vllm-router"], "cells": cells}
        head, _, *rows = report.section(shape, result).splitlines()[2:]
        titles = [cell.strip() for cell in head.split("|")[1:-1]]
        found = next(row for row in rows if row.split("|")[1].strip() == name)
        return list(zip(titles, (cell.strip() for cell in found.split("|")[1:-1])))

    FIGURES = {"direct": (1, 100), "haproxy": (10, 150), "direct-sglang": (1, 200), "direct-vllm": (1, 400),
               "tandem-sglang": (20, 300), "tandem-vllm": (30, 450), "sglang-router": (80, 900), "vllm-router": (60, 1000)}

    def test_what_is_added_is_against_the_floor_of_the_same_legs(self):
        for name, p50, p99 in (("haproxy", "+0.050", "+0.100"), ("tandem-sglang", "+0.100", "+0.200"), ("tandem-vllm", "+0.050", "+0.100")):
            row = dict(self.row("latency", self.FIGURES, name))
            self.assertEqual((row["added p50 ms"], row["added p99 ms"]), (p50, p99), name)

    def test_two_legs_are_beside_the_cheapest_peer_and_haproxy_s_one(self):
        row = self.row("trace", self.FIGURES, "tandem-vllm")
        beside = [value for title, value in row if title in ("× best peer", "× HAProxy, one leg")]
        self.assertEqual(beside, ["0.50", "3.00", "0.50", "3.00"])

    def test_calls_are_for_each_request_and_the_rare_are_in_the_sum(self):
        cell = {"shape": "s", "contender": "tandem", "load": {"requests": 100, "events": 0},
                "syscalls": {"all": 401, "recvfrom": 200, "sendto": 200, "mmap": 1}}
        text = report.calls({"name": "s", "what": "w", "unit": "request"}, {"contenders": {"tandem": ""}, "cells": [cell]})
        self.assertEqual([cell.strip() for cell in text.splitlines()[-1].split("|")[1:-1]], ["tandem", "4.01", "2.00", "2.00"])


class Syscalls(unittest.TestCase):
    def test_both_counters_are_read(self):
        perf = ["# started on", "", "12,,raw_syscalls:sys_enter,100,100.00,,", "5,,syscalls:sys_enter_sendto,100,100.00,,",
                "0,,syscalls:sys_enter_read,100,100.00,,", "<not counted>,,syscalls:sys_enter_brk,0,0.00,,"]
        self.assertEqual(syscalls.of_perf(perf), {"all": 12, "sendto": 5})
        strace = ["% time     seconds  usecs/call     calls    errors syscall", "------ ----------- ----------- --------- --------- ----",
                  " 60.00    0.000100           3         7         2 recvfrom", " 40.00    0.000056           1         5           sendto",
                  "------ ----------- ----------- --------- --------- ----", "100.00    0.000156           1        12         2 total"]
        self.assertEqual(syscalls.of_strace(strace), {"all": 12, "recvfrom": 7, "sendto": 5})


class Environments(unittest.TestCase):
    def test_a_folder_is_an_environment_or_holds_some(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder).resolve()
            for name in ("a", "b"):
                (folder / name / "bin").mkdir(parents=True)
                (folder / name / "bin" / "python3").touch()
            (folder / "c" / "bin").mkdir(parents=True)
            both = [folder / "a" / "bin", folder / "b" / "bin"]
            self.assertEqual(pairs.environments(folder), both)
            self.assertEqual(pairs.environments(folder / "a"), both[:1])
            self.assertEqual(pairs.environments(folder / "a" / "bin"), both[:1])
            self.assertEqual(pairs.environments(None), [])


if __name__ == "__main__":
    unittest.main()
