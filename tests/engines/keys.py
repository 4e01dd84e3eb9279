"""What becomes of each body key that touches how much or how an engine generates: the pair's answer beside one engine's alone."""

from client import send
from prompts import CHAT, COMPLETIONS, Case, words

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "look",
            "description": "look at a thing",
            "parameters": {"type": "object", "properties": {"at": {"type": "boolean"}}, "required": ["at"]},
        },
    }
]
SCHEMA = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"], "additionalProperties": False}
EOS = "1"


def chat(number, /, **extra):
    base = {"model": "tiny", "temperature": 0, "max_tokens": 12, "messages": [{"role": "user", "content": words(number, 30)}]}
    return Case(CHAT, {k: v for k, v in (base | extra).items() if v is not ...})


def completion(number, /, **extra):
    base = {"model": "tiny", "temperature": 0, "max_tokens": 12, "prompt": words(number, 30)}
    return Case(COMPLETIONS, {k: v for k, v in (base | extra).items() if v is not ...})


def generate(number, sampling, /, **extra):
    base = {"text": words(number, 30), "sampling_params": {"temperature": 0, "max_new_tokens": 12} | sampling}
    return Case("/generate", {k: v for k, v in (base | extra).items() if v is not ...})


# Name, request, whether the answer is chosen by chance (then only its shape is compared).
COMMON = [
    # A long prompt: the random model hardly ever ends by itself.
    ("max_tokens absent", chat(1001, max_tokens=..., messages=[{"role": "user", "content": words(1001, 1100)}]), False),
    ("max_tokens 1", chat(1002, max_tokens=1), False),
    ("max_tokens 0", completion(1003, max_tokens=0), False),
    ("max_tokens above the context", chat(1004, max_tokens=100000), False),
    ("max_completion_tokens", chat(1005, max_tokens=..., max_completion_tokens=9), False),
    ("max_tokens and max_completion_tokens", chat(1006, max_tokens=20, max_completion_tokens=9), False),
    ("min_tokens 10", chat(1007, min_tokens=10), False),
    ("ignore_eos", chat(1008, ignore_eos=True), False),
    ("end of text as the first token (logit_bias)", chat(1009, logit_bias={EOS: 100}), False),
    ("stop that never comes", chat(1010, stop=["zzzz", "qqqq"]), False),
    ("stop_token_ids", chat(1011, stop_token_ids=[5, 7]), False),
    ("seed, temperature 1", chat(1012, temperature=1, seed=11), True),
    ("n 2, temperature 1", chat(1013, n=2, temperature=1, seed=3), True),
    ("n 2, temperature 0", chat(1014, n=2), False),
    ("best_of 2", completion(1015, best_of=2, temperature=1), True),
    ("logprobs, chat", chat(1016, logprobs=True, top_logprobs=2), False),
    ("logprobs, completions", completion(1017, logprobs=2), False),
    ("echo", completion(1018, echo=True), False),
    ("echo, max_tokens 0, logprobs", completion(1019, echo=True, max_tokens=0, logprobs=1), False),
    ("response_format json_object", chat(1020, response_format={"type": "json_object"}, max_tokens=40), False),
    (
        "response_format json_schema",
        chat(1021, response_format={"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}, max_tokens=60),
        False,
    ),
    ("tools, tool_choice auto", chat(1022, tools=TOOLS, tool_choice="auto"), False),
    ("tools, tool_choice none", chat(1023, tools=TOOLS, tool_choice="none"), False),
    ("tools, tool_choice required", chat(1024, tools=TOOLS, tool_choice="required", max_tokens=80), False),
    (
        "tools, tool_choice named",
        chat(1025, tools=TOOLS, tool_choice={"type": "function", "function": {"name": "look"}}, max_tokens=80),
        False,
    ),
    ("prompt: list of one", completion(1026, prompt=[words(1026, 30)]), False),
    ("prompt: list of two", completion(1027, prompt=[words(1027, 30), words(1127, 30)]), False),
    ("prompt: token ids", completion(1028, prompt=list(range(300, 360))), False),
    ("prompt: list of token ids", completion(1029, prompt=[list(range(400, 460))]), False),
    ("prompt empty", completion(1030, prompt=""), False),
    ("prompt longer than the context", completion(1031, prompt=words(1031, 5000)), False),
    ("messages absent", chat(1032, messages=...), False),
    ("messages empty", chat(1033, messages=[]), False),
    ("temperature of a wrong type", chat(1034, temperature="hot"), False),
    ("model unknown to the engine", chat(1035, model="nope"), False),
    ("model absent", chat(1036, model=...), False),
    ("presence_penalty, frequency_penalty", chat(1037, presence_penalty=1.5, frequency_penalty=1.0), False),
    ("repetition_penalty", chat(1038, repetition_penalty=1.3), False),
    ("top_k, top_p, min_p", chat(1039, top_k=5, top_p=0.5, min_p=0.1), False),
    ("continue_final_message", chat(1040, add_generation_prompt=False, continue_final_message=True), False),
    ("user, priority 0, metadata", chat(1041, user="u", priority=0, metadata={"a": "b"}), False),
]
VLLM = [
    ("prompt_logprobs, chat", chat(1101, prompt_logprobs=1), False),
    ("prompt_logprobs, completions", completion(1102, prompt_logprobs=0), False),
    ("structured_outputs regex", chat(1103, structured_outputs={"regex": "[ab]{5}"}), False),
    ("use_beam_search", chat(1104, use_beam_search=True, n=2), False),
    ("truncate_prompt_tokens", completion(1105, truncate_prompt_tokens=20), False),
    ("return_token_ids", chat(1106, return_token_ids=True), False),
    ("cache_salt", chat(1107, cache_salt="salt"), False),
    ("bad_words", chat(1108, bad_words=[" u"]), False),
    ("thinking/chat_template_kwargs", chat(1109, chat_template_kwargs={"enable_thinking": False}), False),
    (
        "/v1/responses",
        Case("/v1/responses", {"model": "tiny", "temperature": 0, "max_output_tokens": 12, "input": words(1110, 30)}),
        False,
    ),
    (
        "/v1/messages",
        Case(
            "/v1/messages",
            {"model": "tiny", "temperature": 0, "max_tokens": 12, "messages": [{"role": "user", "content": words(1111, 30)}]},
        ),
        False,
    ),
]
SGLANG = [
    ("/generate", generate(1201, {}), False),
    ("/generate, n 2", generate(1202, {"n": 2, "temperature": 1}), True),
    ("/generate, text: list of two", generate(1203, {}, text=[words(1203, 30), words(1303, 30)]), False),
    ("/generate, input_ids", generate(1204, {}, text=..., input_ids=list(range(300, 350))), False),
    ("/generate, input_ids: list of two", generate(1205, {}, text=..., input_ids=[list(range(300, 350)), [9, 8, 7]]), False),
    ("/generate, return_logprob", generate(1206, {}, return_logprob=True), False),
    ("/generate, regex", generate(1207, {"regex": "[ab]{5}"}), False),
    ("/generate, stop_token_ids", generate(1208, {"stop_token_ids": [5]}), False),
    ("regex, chat", chat(1209, regex="[ab]{5}"), False),
    ("custom params", chat(1210, custom_params={"a": 1}), False),
]


def table(kind):
    return COMMON + (VLLM if kind == "vllm" else SGLANG)


def shape(answer, chance):
    """What two answers must have in common, without ids and times."""
    body = answer.body
    if answer.status != 200:
        error = body.get("error", body) if isinstance(body, dict) else {}
        message = error.get("message") if isinstance(error, dict) else error
        # Both engines quote the whole body they got in some errors, the router's fields included.
        return {"status": answer.status, "message": str(message).split("'input'")[0].split("\\'input")[0]}
    if isinstance(body, list):
        return {"status": 200, "texts": [item.get("text") for item in body] if not chance else len(body)}
    seen = {"status": 200}
    choices = body.get("choices")
    if chance:
        return seen | {"choices": len(choices) if choices else 1}
    for choice in choices or []:
        message = choice.get("message") or {}
        calls = message.get("tool_calls") or []
        seen[f"choice {choice['index']}"] = (
            message.get("content"),
            choice.get("text"),
            [call["function"] for call in calls],
            choice.get("finish_reason"),
        )
        seen[f"logprobs {choice['index']}"] = bool(choice.get("logprobs"))
    for name in ("prompt_logprobs", "output", "content", "text"):
        value = body.get(name)
        if name == "output" and value:
            value = [part.get("text") for item in value for part in item.get("content") or []]
        seen[name] = bool(value) if name == "prompt_logprobs" else value
    usage = body.get("usage") or {}
    seen["usage"] = {k: usage.get(k) for k in ("prompt_tokens", "completion_tokens", "input_tokens", "output_tokens")}
    return seen


def brief(seen):
    if seen["status"] != 200:
        return f"{seen['status']}: {str(seen['message'])[:110]}"
    return "200" + (f", {seen['choices']} choices" if "choices" in seen else "")


def one(url, item, chance):
    """A request's answer as a whole, and as a stream."""
    whole = send(url, item.path, item.streamed(False).body)
    streaming = {k: v for k, v in item.streamed(True).body.items() if k != "stream_options"}
    stream = send(url, item.path, streaming)
    return shape(whole, chance), (stream.status, None if chance else stream.choices, stream.finish)


def ask(url, kind):
    return {name: one(url, item, chance) for name, item, chance in table(kind)}


def run(rig, alone):
    paired = {}
    for name, item, chance in table(rig.kind):
        paired[name] = one(rig.router.url, item, chance)
        if not rig.engines_alive():
            rig.report.check(f"key {name}", False, "an engine died of it")
            rig.restart_dead()
    same = 0
    for name, item, _chance in table(rig.kind):
        mine, theirs = paired[name], alone[name]
        equal = (mine[0] == theirs[0], mine[1] == theirs[1])
        same += all(equal)
        row = {"key": name, "alone": brief(theirs[0]), "pair": brief(mine[0]), "equal": equal[0], "stream_equal": equal[1]}
        rig.report.keys.append(row)
        if not all(equal):
            rig.report.note(f"key {name}: alone {theirs[0]} {theirs[1]} | pair {mine[0]} {mine[1]}")
    rig.report.check("keys asked", True, f"{same} of {len(paired)} the same as one engine alone; the others are listed above")

