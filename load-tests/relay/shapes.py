"""The kinds of traffic. Sizes are chosen so that one cell uses at least a few hundred milliseconds of router CPU."""

from dataclasses import dataclass, field

from . import traces


@dataclass(frozen=True)
class Shape:
    name: str
    what: str
    #: Arguments of the generator.
    load: dict
    #: What a cell costs per: "request", "event", "stream" (memory); or what it adds: "latency", "trace".
    unit: str
    #: Whether the contenders that write an access log run it too.
    logs: bool = True
    #: Rounds at most; memory does not vary like time does.
    rounds: int = 99
    flags: tuple = field(default=())
    #: Whether a prefill and a decode serve it together.
    pd: bool = False
    #: So many prefills, and so many decodes.
    engines: int = 1
    #: Whose shape the requests have, how many a second come, and for how many seconds.
    trace: tuple = ()

    @property
    def adds(self):
        """Whether what counts is the difference to the same load without a router."""
        return self.unit in ("latency", "trace")

    def command(self, scratch):
        """The generator's arguments, but for whom it asks and how. A schedule goes to `scratch`."""
        pairs = [part for key, value in self.load.items() for part in (f"--{key}", str(value))]
        if self.trace:
            schedule = scratch / f"{self.name}.schedule"
            schedule.write_text(traces.schedule(traces.draw(*self.trace)))
            pairs += ["--schedule", str(schedule)]
        return [*pairs, *self.flags]

    def asking(self):
        """How the generator asks."""
        return ["--pd"] if self.pd else []

    def describe(self):
        return {"name": self.name, "what": self.what, "load": self.load, "flags": list(self.flags), "unit": self.unit,
                "pd": self.pd, "engines": self.engines,
                "trace": self.trace}


ONE_LEG = ("chat", "saturated", "single", "paced", "prompt", "prompt-1m", "open", "idle")
PD = ("pd-chat", "pd-saturated", "pd-prompt", "pd-prompt-1m", "pd-open", "azure", "mooncake")
NAMES = ONE_LEG + PD
#: Engines of a role in any shape.
MOST = 4


def table(quick, names):
    """The shapes of that name, in the order of NAMES; small ones if `quick`."""
    size = (lambda full, small: small) if quick else (lambda full, small: full)
    shapes = [
        Shape("chat", "small chat, plain answer, 32 connections",
              {"connections": 32, "requests": size(60000, 15000)}, "request"),
        Shape("saturated", "32 streams of 200 events as fast as they go, 4 events in a write",
              {"connections": 32, "requests": size(3200, 640), "events": 200, "burst": 4}, "event", logs=not quick),
        Shape("single", "32 streams of 200 events as fast as they go, a write for each event",
              {"connections": 32, "requests": size(1600, 320), "events": 200}, "event", logs=False),
        Shape("paced", "256 streams, an event every 10 ms",
              {"connections": 256, "requests": 256, "events": size(400, 120), "gap-us": 10000}, "event",
              logs=not quick),
        Shape("prompt", "108 KB request body, plain answer, 32 connections",
              {"connections": 32, "requests": size(12000, 3000), "body-bytes": 108 * 1024}, "request",
              logs=not quick),
        # Eight connections: a router that holds bodies holds 8 MB of them, not 32.
        Shape("prompt-1m", "1 MB request body, plain answer, 8 connections",
              {"connections": 8, "requests": size(2000, 400), "body-bytes": 1 << 20}, "request", logs=False),
        Shape("open", "small chat, Poisson arrivals at 1,000/s whatever the answers do",
              {"connections": 64, "requests": size(4000, 1000), "rate": 1000}, "latency", logs=False),
        Shape("idle", "open streams that say nothing",
              {"connections": size(8000, 2000)}, "stream", logs=False, rounds=size(3, 1), flags=("--idle",)),
        # The slower ones need several times as long as their one-leg kin.
        Shape("pd-chat", "prefill and decode, small chat, plain answer, 32 connections",
              {"connections": 32, "requests": size(30000, 6000)}, "request", logs=False, pd=True),
        Shape("pd-saturated", "prefill and decode, 32 streams of 200 events as fast as they go, 4 events in a write",
              {"connections": 32, "requests": size(3200, 640), "events": 200, "burst": 4}, "event", logs=False,
              pd=True),
        Shape("pd-prompt", "prefill and decode, 108 KB request body, plain answer, 32 connections",
              {"connections": 32, "requests": size(6000, 1500), "body-bytes": 108 * 1024}, "request", logs=False,
              pd=True),
        Shape("pd-prompt-1m", "prefill and decode, 1 MB request body, plain answer, 8 connections",
              {"connections": 8, "requests": size(1000, 200), "body-bytes": 1 << 20}, "request", logs=False, pd=True),
        Shape("pd-open", "4 prefills and 4 decodes, small chat, Poisson arrivals at 1,000/s whatever the answers do",
              {"connections": 64, "requests": size(6000, 1500), "rate": 1000}, "latency", logs=False, pd=True,
              engines=4),
        # Rates that give some 17,000 tokens a second, which a router with one CPU carries, whoever it is.
        Shape("azure", "prefill and decode, shape of Azure's conversation trace of 2023 at 80 requests/s, a token every 5 ms",
              {"connections": 256, "gap-us": 5000}, "trace", logs=False, pd=True, trace=("azure", 80, size(10, 2.5))),
        Shape("mooncake", "prefill and decode, shape of Mooncake's conversation trace at 50 requests/s, a token every 5 ms",
              {"connections": 256, "gap-us": 5000}, "trace", logs=False, pd=True, trace=("mooncake", 50, size(10, 2.5))),
    ]
    return [shape for shape in shapes if shape.name in names]
