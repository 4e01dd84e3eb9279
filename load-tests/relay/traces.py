"""Schedules with the shape of published traces: when requests come, how long their prompts and their answers are.

    python3 load-tests/relay/traces.py azure AzureLLMInferenceTrace_conv.csv > azure.json
    python3 load-tests/relay/traces.py mooncake conversation_trace.jsonl > mooncake.json

makes the descriptions that lie in `traces.json`, from the files that their publishers offer. A description has quantiles
only, so a schedule drawn from it has each quantity's distribution and nothing that ties them: no times of day, no
conversations, no shared beginnings. Lengths of prompts and answers hardly go together in either (their rank
correlation is in the description), so they are drawn apart.

No file is needed to measure. Draws are seeded: every contender in every round has the same requests.
"""

import bisect
import csv
import datetime
import json
import math
import pathlib
import random
import re
import statistics
import sys

#: Bytes of a token's text, about what English has.
BYTES_PER_TOKEN = 4
#: Where quantiles are taken: dense, and denser where tails are long.
POINTS = (*(n / 50 for n in range(50)), 0.99, 0.995, 0.999, 1.0)
DESCRIPTIONS = pathlib.Path(__file__).with_name("traces.json")


def description(name):
    return json.loads(DESCRIPTIONS.read_text())[name]


def draw(name, rate, seconds, seed=1):
    """Requests for `seconds` at a mean `rate`, the trace's own distances scaled: (seconds, prompt tokens, answer tokens)."""
    trace = description(name)
    chance = random.Random(seed)
    requests, at = [], 0.0
    while at < seconds:
        requests.append((at, round(quantile(trace["input_tokens"], chance.random())),
                         max(round(quantile(trace["output_tokens"], chance.random())), 1)))
        gap = quantile(trace["gap"], chance.random()) if trace["gap"] else chance.expovariate(1)
        at += gap / rate
    return requests


def schedule(requests):
    """The generator's file."""
    return "".join(f"{round(at * 1e6)} {prompt * BYTES_PER_TOKEN} {answer}\n" for at, prompt, answer in requests)


def quantile(values, share):
    """The quantile of a share between 0 and 1, a straight line between the points."""
    right = min(max(bisect.bisect_left(POINTS, share), 1), len(POINTS) - 1)
    low, high = POINTS[right - 1], POINTS[right]
    part = (share - low) / (high - low)
    return values[right - 1] + (values[right] - values[right - 1]) * part


def describe(name, lines):
    """The description of a published trace."""
    times, prompts, answers = zip(*READERS[name](lines))
    gaps = sorted(later - sooner for sooner, later in zip(times, times[1:]))
    mean = statistics.mean(gaps)
    # Mooncake's times are cut to 3 s: its distances say nothing below that. Its windows hold what Poisson's do.
    gap = None if name == "mooncake" else [round(value / mean, 4) for value in at_points(gaps)]
    return {
        "requests": len(times), "seconds": round(times[-1] - times[0]),
        "mean_input_tokens": round(statistics.mean(prompts)), "mean_output_tokens": round(statistics.mean(answers)),
        "rank_correlation": round(rank_correlation(prompts, answers), 2),
        "gap": gap, "input_tokens": at_points(sorted(prompts)), "output_tokens": at_points(sorted(answers)),
    }


def at_points(ordered):
    return [ordered[min(math.floor(point * len(ordered)), len(ordered) - 1)] for point in POINTS]


def rank_correlation(left, right):
    return statistics.correlation(ranks(left), ranks(right))


def ranks(values):
    """The rank of each; equal ones share the middle of theirs."""
    ordered = sorted(values)
    return [(bisect.bisect_left(ordered, value) + bisect.bisect_right(ordered, value)) / 2 for value in values]


def azure(lines):
    """TIMESTAMP,ContextTokens,GeneratedTokens with seven digits of a second."""
    for row in csv.DictReader(lines):
        at = datetime.datetime.fromisoformat(row["TIMESTAMP"][:26])
        yield at.timestamp(), int(row["ContextTokens"]), int(row["GeneratedTokens"])


def mooncake(lines):
    """An object for each request, with milliseconds and lengths."""
    for line in lines:
        row = json.loads(line)
        yield row["timestamp"] / 1000, row["input_length"], row["output_length"]


READERS = {"azure": azure, "mooncake": mooncake}


if __name__ == "__main__":
    with open(sys.argv[2], encoding="utf-8") as trace:
        said = json.dumps(describe(sys.argv[1], trace), indent=1)
    # Numbers in lines, not one a line.
    print(re.sub(r"\[[^]]*\]", lambda found: re.sub(r"\s+", " ", found[0]), said))
