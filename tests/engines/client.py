"""A client that says exactly how an answer went: complete, cut, in-band error, and which text came."""

import http.client
import json
import socket
import time
from dataclasses import dataclass, field
from urllib.parse import urlsplit

LIMIT = 90


@dataclass
class Answer:
    status: int = 0
    headers: dict = field(default_factory=dict)
    body: object = None
    text: str = ""
    finish: object = None
    usage: object = None
    error: object = None
    done: bool = False
    cut: str = ""
    events: int = 0
    seconds: float = 0.0
    began: float = 0.0
    first: float = 0.0
    choices: dict = field(default_factory=dict)

    def ended_well(self):
        return self.status == 200 and not self.cut and self.error is None and self.finish in ("stop", "length", "tool_calls")

    def summary(self):
        """How it ended, in a word or two; equal outcomes have equal summaries."""
        if self.status == 0:
            return f"no answer ({self.cut})"
        if self.status != 200:
            inner = (self.body or {}).get("error") if isinstance(self.body, dict) else None
            code = inner.get("code") if isinstance(inner, dict) else None
            return f"{self.status} {code or ''}".strip()
        if self.error is not None:
            return f"200, error event {self.error.get('code', '')}{', cut' if self.cut else ''}"
        if self.cut:
            return f"200, cut ({self.cut})"
        return f"200 {self.finish}"


def send(base, path, body, headers=None, leave_after=None, answer=None):
    """One request. `leave_after`: seconds after which the client closes its socket, or a number of events as "3 events".
    `answer`: filled while it comes."""
    where = urlsplit(base)
    answer = Answer() if answer is None else answer
    answer.began = time.monotonic()
    connection = http.client.HTTPConnection(where.hostname, where.port, timeout=LIMIT)
    try:
        connection.request(
            "POST", path, json.dumps(body).encode(), {"Content-Type": "application/json"} | (headers or {})
        )
        if isinstance(leave_after, float):
            connection.sock.settimeout(leave_after)
        response = connection.getresponse()
        answer.status, answer.headers = response.status, dict(response.getheaders())
        if response.getheader("content-type", "").startswith("text/event-stream"):
            _read_events(response, answer, leave_after)
        else:
            _read_whole(response, answer)
    except (OSError, http.client.HTTPException) as error:
        answer.cut = "left" if isinstance(error, socket.timeout) and leave_after else type(error).__name__
    finally:
        answer.seconds = time.monotonic() - answer.began
        connection.close()
    return answer


def _read_whole(response, answer):
    raw = response.read()
    try:
        answer.body = json.loads(raw)
    except ValueError:
        answer.body = raw.decode(errors="replace")
        return
    if answer.status == 200 and isinstance(answer.body, dict):
        _take(answer.body, answer, "message")


def _read_events(response, answer, leave_after):
    wanted = int(leave_after.split()[0]) if isinstance(leave_after, str) else None
    end = time.monotonic() + leave_after if isinstance(leave_after, float) else None
    while line := response.readline():
        if not line.startswith(b"data:"):
            continue
        data = line[5:].strip()
        if data == b"[DONE]":
            answer.done = True
            continue
        answer.events += 1
        event = json.loads(data)
        had = answer.text
        if event.get("error"):
            answer.error = event["error"]
        _take(event, answer, "delta")
        if answer.text != had and not answer.first:
            answer.first = time.monotonic()
        if wanted is not None and answer.events >= wanted or end is not None and time.monotonic() > end:
            answer.cut = "left"
            return
    if not answer.done and answer.error is None and answer.finish is None:
        answer.cut = "ended early"


def _take(event, answer, kind):
    answer.usage = event.get("usage") or answer.usage
    for choice in event.get("choices") or []:
        part = choice.get(kind) or {}
        text = part.get("content") or choice.get("text") or ""
        index = choice.get("index", 0)
        answer.choices[index] = answer.choices.get(index, "") + text
        answer.finish = choice.get("finish_reason") or answer.finish
    answer.text = answer.choices.get(0, answer.text)
    if "text" in event and "meta_info" in event:  # SGLang's own route: the whole text so far
        answer.text = event["text"]
        reason = event["meta_info"].get("finish_reason")
        answer.finish = reason["type"] if isinstance(reason, dict) else reason
