"""Requests whose right answers one engine alone has given: what comes through a pair is compared with those, text for text."""

import json
import random
from dataclasses import dataclass, field

WORDS = (
    "river stone window paper carbon signal orange market engine winter garden mirror copper thunder velvet "
    "harbor lantern planet compass meadow shadow bridge ticket canvas marble falcon pepper saddle tunnel basket"
).split()
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


@dataclass(frozen=True)
class Case:
    path: str
    body: dict = field(hash=False)

    def key(self):
        without = {k: v for k, v in self.body.items() if k not in ("stream", "stream_options")}
        return self.path + json.dumps(without, sort_keys=True)

    def streamed(self, stream):
        extra = {"stream": True, "stream_options": {"include_usage": True}} if stream else {"stream": False}
        return Case(self.path, self.body | extra)


def words(seed, count):
    """A text of its own from its first token on, so that no prefix cache can stand in for a transfer."""
    draw = random.Random(seed)
    return f"{seed * 7919 % 10007} " + " ".join(draw.choice(WORDS) for _ in range(count))


def case(path, seed, size, tokens, **extra):
    body = {"model": "tiny", "max_tokens": tokens, "temperature": 0, "ignore_eos": True, **extra}
    text = words(seed, size)
    if path == CHAT:
        return Case(path, body | {"messages": [{"role": "user", "content": text}]})
    return Case(path, body | {"prompt": text})


def varied(first_seed, count, tokens):
    """Short, middling and long prompts on both routes; the longest is a few thousand tokens."""
    sizes = [3, 40, 200, 700, 1, 400]
    return [
        case(CHAT if i % 3 else COMPLETIONS, first_seed + i, sizes[i % len(sizes)], tokens) for i in range(count)
    ]
