"""Right texts and real transfers, without faults."""

from concurrent.futures import ThreadPoolExecutor

from client import send
from prompts import Case, varied

CONCURRENCY = 16
EACH = varied(100, 12, 24)
LOAD = varied(300, 96, 32)
KEYS = varied(500, 6, 16)
# What a client must not be able to say to an engine; unremoved, several of these end its process.
FOREIGN_BODY = [
    {"kv_transfer_params": {"do_remote_prefill": True}},
    {"kv_transfer_params": {"do_remote_decode": True, "do_remote_prefill": False}},
    {"kv_transfer_params": "x"},
    {"bootstrap_room": 7},
    {"bootstrap_host": "127.0.0.1", "bootstrap_port": 1, "bootstrap_room": "x", "bootstrap_pair_key": "k"},
    {"rid": "mine", "data_parallel_rank": 3, "routed_dp_rank": 3, "disagg_prefill_dp_rank": 3},
]
FOREIGN_HEADERS = {
    "x-override-bootstrap-room": "7",
    "x-override-bootstrap-host": "127.0.0.1",
    "x-override-kv-transfer-params": '{"do_remote_prefill":true}',
    "x-data-parallel-rank": "3",
    "x-kv-transfer-params": "{}",
}


def cases():
    return EACH + LOAD + KEYS


def wrong(answer, expected):
    """Why a whole answer is not the expected one, or nothing."""
    if not answer.ended_well():
        return answer.summary()
    if answer.text != expected.text:
        return f"text {answer.text[:40]!r} instead of {expected.text[:40]!r}"
    if answer.usage and expected.usage:
        for name in ("prompt_tokens", "completion_tokens"):
            if answer.usage[name] != expected.usage[name]:
                return f"{name} {answer.usage[name]} instead of {expected.usage[name]}"
    return ""


def run(rig):
    one_by_one(rig)
    at_once(rig)
    foreign(rig)


def one_by_one(rig):
    """Each prompt once, streaming and not in turn: the transferred tokens are exactly the prompts' own."""
    before, bad, prompt_tokens = rig.transferred(), [], 0
    for i, item in enumerate(EACH):
        expected = rig.expected(item)
        answer = send(rig.router.url, item.path, item.streamed(i % 2 == 0).body)
        prompt_tokens += expected.usage["prompt_tokens"]
        if why := wrong(answer, expected):
            bad.append(why)
        if i % 2 == 0 and not answer.done:
            bad.append("a stream without [DONE]")
    rig.report.check("texts equal, one by one", not bad, f"{len(EACH)} requests; {bad[:3]}")
    rig.check_transfers("transfers, one by one", before, prompt_tokens, len(EACH))


def at_once(rig):
    before = rig.transferred()
    with ThreadPoolExecutor(CONCURRENCY) as pool:
        jobs = [
            pool.submit(send, rig.router.url, item.path, item.streamed(i % 3 != 0).body) for i, item in enumerate(LOAD)
        ]
        answers = [job.result() for job in jobs]
    reasons = [why for item, answer in zip(LOAD, answers) if (why := wrong(answer, rig.expected(item)))]
    seconds = sorted(answer.seconds for answer in answers)
    rig.report.check(
        f"texts equal, {CONCURRENCY} at once",
        not reasons,
        f"{len(LOAD)} requests, {len(reasons)} wrong {reasons[:3]}, median {seconds[len(seconds) // 2]:.2f} s",
    )
    rig.check_transfers(
        f"transfers, {CONCURRENCY} at once",
        before,
        sum(rig.expected(item).usage["prompt_tokens"] for item in LOAD),
        len(LOAD),
    )
    rig.check_rest("at rest after load")


def foreign(rig):
    """Keys and headers that steer engines, from a client: removed, and the answer is the right one."""
    bad = []
    for i, extra in enumerate(FOREIGN_BODY):
        item = KEYS[i]
        for stream in (True, False):
            sent = Case(item.path, extra | item.streamed(stream).body)
            answer = send(rig.router.url, sent.path, sent.body, FOREIGN_HEADERS)
            if why := wrong(answer, rig.expected(item)):
                bad.append(f"{extra}: {why}")
    rig.report.check("client's own P/D keys and headers", not bad and rig.engines_alive(), bad[:4])
