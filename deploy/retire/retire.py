#!/usr/bin/env python3
"""retire.py POD: takes one replica out of a fleet without losing a request, or leaves it as it was.

The protocol of docs/drain.md as a program of one page, to read, to run, or to write a controller by:

    admitted       the Pod's UID is what everything below is about; a namesake is another Pod
    disqualified   the endpoint-eligible label is off; no router may give it a new request
    draining       every router replica says so twice: nothing in flight there, no KV of it waited for; and so does the engine
    deleting       the Pod is deleted, if it still is that UID

Until it is deleted, any end (a budget that is over, SIGINT, SIGTERM) puts the label back: the replica serves on. Whatever is
missing, stale or of another boot is unknown, and unknown holds. Python's standard library only.

Environment: KUBE, the API server, such as http://127.0.0.1:8001 of `kubectl proxy`; ROUTERS, http://HOST:PORT of the admin
listeners, several with commas, a name with several addresses meaning each of them.
"""
import argparse, json, os, signal, socket, sys, time, urllib.error, urllib.parse, urllib.request

LABEL = "tandem.dev/endpoint-eligible"
GAUGES = {  # each has to be there and 0
    "vllm": ["vllm:num_requests_running", "vllm:num_requests_waiting"],
    "sglang": [f"sglang:num_{queue}_reqs" for queue in (
        "running", "queue", "prefill_bootstrap_queue", "prefill_inflight_queue", "decode_prealloc_queue",
        "decode_transfer_queue")],
}
KUBE, ROUTERS = os.environ["KUBE"].rstrip("/"), os.environ["ROUTERS"].split(",")
direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # whatever http_proxy says


class Aborted(Exception):
    """Nothing was deleted, and nothing will be."""


def kube(method, path, body=None):
    request = urllib.request.Request(f"{KUBE}{path}", method=method, data=body and json.dumps(body).encode())
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    request.add_header("Content-Type", kind)
    with direct.open(request, timeout=10) as answer:
        return json.load(answer)


def label(pod, value):
    """The UID in the patch is its precondition: a namesake answers 409."""
    kube("PATCH", path_of(pod), {"metadata": {"uid": pod["metadata"]["uid"], "labels": {LABEL: value}}})


def path_of(pod):
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def replicas():
    """host:port of every router there is now."""
    found = set()
    for host, _, port in (url.removeprefix("http://").rpartition(":") for url in ROUTERS):
        for *_, address in socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM):
            found.add(f"[{address[0]}]:{port}" if ":" in address[0] else f"{address[0]}:{port}")
    return sorted(found)


def reports(uid):
    """By replica: its boot, the number of its answer, and its rows of this Pod. Raises what makes one unknown."""
    found = {}
    for replica in replicas():
        with direct.open(f"http://{replica}/observer/inflight?uid={urllib.parse.quote(uid)}", timeout=5) as answer:
            report = json.load(answer)
        router, rows = report["router"], report["endpoints"] + report["pods"]
        if report["schema"] != 1 or not rows:
            raise ValueError(f"{replica} does not know the Pod")
        found[replica] = ((router["instance"], router["boot_generation"]), router["seq"], rows)
    if not found:
        raise ValueError("there is no router")
    return found


def served(views):
    return any(row.get("selectable", False) for _, _, rows in views.values() for row in rows)


def carried(views):
    """What is in flight by replica; what is quiet is left out."""
    rows = {replica: [row["in_flight"] for row in rows if "in_flight" in row] for replica, (_, _, rows) in views.items()}
    totals = {replica: sum(sum(kinds.values()) for kinds in of) for replica, of in rows.items()}
    return {replica: total for replica, total in totals.items() if total}


def engine_is_idle(pod, port, names):
    """The other leg: the engine's own word. A restarted engine cannot speak for the work of the one before."""
    if any(container["restartCount"] for container in pod["status"].get("containerStatuses", [])):
        raise ValueError("a container was restarted")
    with direct.open(f"http://{pod['status']['podIP']}:{port}/metrics", timeout=2) as answer:
        lines = answer.read(1 << 20).decode().splitlines()
    values = {}
    for line in (line for line in lines if line and not line.startswith("#")):
        name, value = line.split("{")[0].split(" ")[0], float(line.rsplit(" ", 1)[1])
        values.setdefault(name, []).append(value)
    missing = [name for name in names if name not in values]
    if missing:
        raise ValueError(f"the engine does not say {', '.join(missing)}")
    return all(value == 0 for name in names for value in values[name])


def wait(budget, what, holds):
    """Until `holds()` is true; what it raises is unknown, and waits like everything that is not so."""
    until, shown = time.monotonic() + budget, None
    while True:
        try:
            is_so, why = holds()
        except (OSError, ValueError, KeyError) as error:
            is_so, why = False, f"unknown: {error}"
        if why != shown:
            print(f"{what}: {why}", flush=True)
            shown = why
        if is_so:
            return
        if time.monotonic() > until:
            raise Aborted(f"the budget of {budget:g} s is over; {what}: {why}")
        time.sleep(1)


class Retirement:
    def __init__(self, pod, args):
        self.pod, self.args, self.uid = pod, args, pod["metadata"]["uid"]
        self.boots, self.last, self.quiet = None, {}, 0

    def views(self):
        """Of the replicas that there were at the beginning, each still the same process."""
        views = reports(self.uid)
        boots = {replica: boot for replica, (boot, _, _) in views.items()}
        self.boots = self.boots or boots
        if boots != self.boots:
            raise ValueError("a router was restarted, came or went")
        return views

    def is_withdrawn(self):
        yes = not served(self.views())
        return yes, "none does" if yes else "one still does"

    def is_drained(self):
        last, quiet, self.last, self.quiet = self.last, self.quiet, {}, 0  # until this reading says otherwise
        views = self.views()
        now = kube("GET", path_of(self.pod))
        if now["metadata"]["uid"] != self.uid:
            raise Aborted("it was ended by somebody else")
        open_at = carried(views)
        idle = engine_is_idle(now, self.args.engine_port, GAUGES[self.args.engine])
        self.last = {replica: seq for replica, (_, seq, _) in views.items()}
        fresh = bool(last) and all(self.last[replica] > last[replica] for replica in self.last)
        if idle and not open_at and not served(views):
            self.quiet = quiet + 1 if fresh else 1
        return self.quiet >= 2, f"at routers {open_at or 0}, the engine is {'idle' if idle else 'busy'}"


def retire(args):
    pod = kube("GET", f"/api/v1/namespaces/{args.namespace}/pods/{args.pod}")
    before = pod["metadata"].get("labels", {}).get(LABEL)
    if before is None:
        sys.exit(f"{args.pod} does not carry {LABEL}: it is not in service")
    it = Retirement(pod, args)
    print(f"admitted: {args.namespace}/{args.pod}, UID {it.uid}", flush=True)
    try:
        label(pod, None)
        wait(args.withdraw_budget, "disqualified, a router that gives it requests", it.is_withdrawn)
        wait(args.drain_budget, "draining, in flight", it.is_drained)
    except (Aborted, KeyboardInterrupt, OSError) as why:
        label(pod, before)
        print(f"aborted: {str(why) or 'asked to stop'}; the replica serves on", flush=True)
        return 1
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, signal.SIG_IGN)  # there is no way back from here
    options = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": it.uid}}
    kube("DELETE", path_of(pod), options)
    print("deleting", flush=True)
    return 0


def asked_to_stop(*_):
    raise KeyboardInterrupt


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Retires one replica, or leaves it as it was.")
    parser.add_argument("pod")
    parser.add_argument("--namespace", default="default")
    parser.add_argument("--engine", choices=GAUGES, default="vllm")
    parser.add_argument("--engine-port", type=int, default=8000, help="where the engine has /metrics")
    parser.add_argument("--withdraw-budget", type=float, default=30, metavar="SECONDS")
    parser.add_argument("--drain-budget", type=float, default=240, metavar="SECONDS")
    signal.signal(signal.SIGTERM, asked_to_stop)
    sys.exit(retire(parser.parse_args()))
