"""Uses a server through the real `openai` package, as its users do, and prints what they would see.

    openai_client.py [--key KEY] [--retries N] BASE_URL SCENARIO...

BASE_URL includes /v1; the key is "test-key" and nothing is repeated unless said otherwise. A scenario is NAME or NAME:MODEL (default model "mock"):

    chat      one answer: text, finish_reason, usage, id
    stream    a streamed answer: events, text, finish_reason, usage; or the error that the stream raised
    models    the ids of the model list
    error     a chat that must fail: class, status, body fields, request id, retry-after

Prints one JSON object with a result per scenario, under the scenario's own spelling. An exception that the package raises
for the server's answer is a result ("error"); any other is a fault of this script and ends it with a traceback.
"""

import argparse
import json

import openai

TIMEOUT_S = 20


def describe(error):
    """What a caller can learn from an exception of the package."""
    seen = {"class": type(error).__name__, "message": str(error)}
    if isinstance(error, openai.APIError):
        seen.update(code=error.code, type=error.type, param=error.param, body=error.body)
    if isinstance(error, openai.APIStatusError):
        seen.update(
            status=error.status_code,
            request_id=error.request_id,
            retry_after=error.response.headers.get("retry-after"),
            should_retry=error.response.headers.get("x-should-retry"),
        )
    return seen


def messages():
    return [{"role": "user", "content": "秋水长天 🌍"}]


def chat(client, model):
    answer = client.chat.completions.create(model=model, messages=messages())
    choice = answer.choices[0]
    return {
        "id": answer.id,
        "text": choice.message.content,
        "finish_reason": choice.finish_reason,
        "usage": answer.usage.model_dump() if answer.usage else None,
    }


def stream(client, model):
    seen = {"events": 0, "text": "", "finish_reason": None, "usage": None, "error": None}
    options = {"include_usage": True}
    try:
        for chunk in client.chat.completions.create(
            model=model, messages=messages(), stream=True, stream_options=options
        ):
            seen["events"] += 1
            if chunk.usage:
                seen["usage"] = chunk.usage.model_dump()
            for choice in chunk.choices:
                seen["text"] += choice.delta.content or ""
                seen["finish_reason"] = choice.finish_reason or seen["finish_reason"]
    except Exception as error:  # Also the transport's own: what surfaces depends on where the stream broke.
        seen["error"] = describe(error)
    return seen


def models(client, _model):
    return {"ids": [model.id for model in client.models.list()]}


def error(client, model):
    try:
        return {"error": None, "answer": chat(client, model)}
    except openai.OpenAIError as raised:
        return {"error": describe(raised)}


SCENARIOS = {"chat": chat, "stream": stream, "models": models, "error": error}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--key", default="test-key")
    parser.add_argument("--retries", type=int, default=0)
    parser.add_argument("base_url")
    parser.add_argument("scenarios", nargs="+")
    given = parser.parse_args()
    client = openai.OpenAI(
        base_url=given.base_url, api_key=given.key, max_retries=given.retries, timeout=TIMEOUT_S
    )
    results = {}
    for scenario in given.scenarios:
        name, _, model = scenario.partition(":")
        try:
            results[scenario] = SCENARIOS[name](client, model or "mock")
        except openai.OpenAIError as raised:
            results[scenario] = {"error": describe(raised)}
    print(json.dumps(results))


if __name__ == "__main__":
    main()
