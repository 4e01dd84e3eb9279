"""The table: median and range over the rounds, and the ratio to HAProxy in the same run."""

import statistics

from .measure import CROWDED

BASE = "haproxy"


def text(result):
    """All shapes as Markdown."""
    machine = result["machine"]
    parts = [f"{machine['cpu']}, {machine['cpus']} CPUs, Linux {machine['kernel']}; {result['rounds']} rounds, "
             f"{result['seconds']} s{', QUICK' if result['quick'] else ''}{', real-time class' if result['realtime'] else ''}"]
    parts += dict.fromkeys(result["contenders"].values())
    if result["counter"]:
        parts.append(f"system calls counted by {result['counter']}")
    for shape in result["shapes"]:
        parts.append("\n" + (calls if result["counter"] else section)(shape, result))
    shared = 0 if result["counter"] else sum(disturbed(cell) for cell in result["cells"])
    if shared:
        parts.append(f"\nNOT A QUIET MACHINE: in {shared} cells other programs used over {CROWDED:.0%} of the router's CPU. "
                     "Work piles up meanwhile and looks cheaper (events) or dearer (caches) than it is; such cells are left "
                     "out wherever a contender has a quiet one, and rows marked ~ have none.")
    bad = [cell for cell in result["cells"] if cell.get("invalid")]
    if bad:
        parts.append(f"\n{len(bad)} cells are INVALID and in no figure above:")
        parts += sorted({f"  {cell['contender']}/{cell['shape']}: {cell['invalid']}" for cell in bad})
    return "\n".join(parts)


def section(shape, result):
    head, rows = table(shape, result)
    return f"### {shape['name']}: {shape['what']}\n\n" + grid(head, rows)


def tables(result):
    """The tables as they are printed, by shape, for whoever reads the JSON."""
    make = calls_table if result["counter"] else table
    return {shape["name"]: dict(zip(("columns", "rows"), make(shape, result))) for shape in result["shapes"]}


def table(shape, result):
    """Titles and rows."""
    cells = {name: [cell for cell in result["cells"]
                    if cell["shape"] == shape["name"] and cell["contender"] == name and not cell.get("invalid")]
             for name in result["contenders"]}
    columns, rows = columns_of(shape), []
    used = {name: quiet(mine) or mine for name, mine in cells.items()}
    for name, mine in used.items():
        if mine:
            mark = "" if quiet(mine) else " ~"
            beside = {"haproxy": base_of(name, used), "direct": floor_of(name, used, result),
                      "peer": lambda key: best(key, used, result["peers"])}
            rows.append([name + mark, f"{len(mine)}/{len(cells[name])}", *[column(mine, beside) for _, column in columns]])
    return ["", "cells", *[title for title, _ in columns]], rows


def calls(shape, result):
    return f"### {shape['name']}: {shape['what']}; for each {per(shape)}\n\n" + grid(*calls_table(shape, result))


def per(shape):
    return "event" if shape["unit"] in ("event", "trace") else "request"


def calls_table(shape, result):
    """System calls for each request or event, all and by name."""
    unit = per(shape)
    counts = {name: median_of_calls([cell for cell in result["cells"] if cell["shape"] == shape["name"]
                                     and cell["contender"] == name and "syscalls" in cell], unit)
              for name in result["contenders"]}
    counts = {name: mine for name, mine in counts.items() if mine}
    # What hardly anybody does is in the sum only.
    least = max(0.02, 0.01 * max((mine["all"] for mine in counts.values()), default=0))
    names = {name: max(mine.get(name, 0) for mine in counts.values()) for mine in counts.values() for name in mine}
    names = sorted((name for name in names if names[name] >= least), key=lambda name: (name != "all", -names[name]))
    rows = [[name, *(f"{mine.get(each, 0):.2f}" for each in names)]
            for name, mine in counts.items()]
    return ["", *names], rows


def median_of_calls(cells, unit):
    """By name, for each request or event."""
    names = {name for cell in cells for name in cell["syscalls"]}
    return {name: statistics.median(cell["syscalls"].get(name, 0) / cell["load"][unit + "s"] for cell in cells)
            for name in names}


def disturbed(cell):
    return cell.get("disturbed", False)


def quiet(cells):
    return [cell for cell in cells if not disturbed(cell)]


def best(key, cells, peers):
    """The cells of the peer that is cheapest by this key."""
    mine = [cells[name] for name in peers if cells.get(name)]
    return min(mine, key=lambda cells: median(cells, lambda cell: cell[key]), default=[])


def base_of(name, cells):
    """HAProxy doing the same: with its log on, if this one's is."""
    _, plus, log = name.partition("+")
    return cells.get(BASE + plus + log) or []


def floor_of(name, cells, result):
    """The same load without a router: with both legs in the same way, if this one sends two."""
    wire = result["wires"][name]
    return cells.get("direct" if wire == "one_leg" else f"direct-{wire}")


def spread(pick, digits=2):
    """A column: median (min-max) of what `pick` finds in the cells."""
    def column(mine, _beside):
        values = sorted(filter(lambda value: value is not None, map(pick, mine)))
        if not values:
            return "-"
        return f"{statistics.median(values):.{digits}f} ({values[0]:.{digits}f}-{values[-1]:.{digits}f})"
    return column


def ratio(key, whose="haproxy"):
    """A column: the median against HAProxy's, or the best peer's."""
    def column(mine, beside):
        other = beside[whose](key) if whose == "peer" else beside[whose]
        here, there = median(mine, lambda cell: cell.get(key)), median(other, lambda cell: cell.get(key))
        return f"{here / there:.2f}" if here is not None and there else "-"
    return column


def added(pick):
    """A column: the median less that of the same load without a router, in milliseconds."""
    def column(mine, beside):
        here, there = median(mine, pick), median(beside["direct"] or [], pick)
        return f"{(here - there) / 1000:+.3f}" if here is not None and there is not None else "-"
    return column


def logged(mine, _beside):
    """A column: lines in the access log for each request."""
    share = median(mine, lambda cell: cell["log_lines"] / cell["load"]["requests"] if "log_lines" in cell else None)
    return "-" if share is None else f"{share:.0%}"


def median(cells, pick):
    values = [value for value in map(pick, cells) if value is not None]
    return statistics.median(values) if values else None


def percentile(kind, point, digits=0):
    return spread(lambda cell: cell["load"][kind][point], digits)


BUSY = ("router busy", spread(lambda cell: cell.get("busy"), 2))
OTHERS = ("CPU taken", spread(lambda cell: cell.get("taken"), 2))
RSS = ("RSS peak MiB", spread(lambda cell: cell["rss_peak_kib"] / 1024 if "rss_peak_kib" in cell else None, 1))
RATE = ("requests/s", spread(lambda cell: cell["load"]["requests_per_s"], 0))

TIMES_HAPROXY = "× HAProxy"


def cost(unit):
    """Columns: what one costs, and that beside the others' (`columns_of`)."""
    key = f"us_per_{unit}"
    return [(f"CPU µs/{unit}", spread(lambda cell: cell.get(key))), (TIMES_HAPROXY, key)]


def events_a_second(cell):
    return cell["load"]["events"] / cell["load"]["wall_s"]


def adding(what, kind):
    """Columns: what the router adds to the median, and to the 99th percentile."""
    return [(f"added {what}{point} ms", added(lambda cell, point=point: cell["load"][kind][point])) for point in ("p50", "p99")]


COLUMNS = {
    "request": [
        *cost("request"), RATE, BUSY, OTHERS, ("p50 µs", percentile("latency_us", "p50")),
        ("p99 µs", percentile("latency_us", "p99")), RSS, ("logged", logged)],
    "event": [
        *cost("event"), ("events/s", spread(events_a_second, 0)), BUSY, OTHERS,
        ("TTFT p50 µs", percentile("ttft_us", "p50")), ("TTFT p99 µs", percentile("ttft_us", "p99")),
        RSS, ("logged", logged)],
    "latency": [
        ("p50 µs", percentile("latency_us", "p50")), ("p99 µs", percentile("latency_us", "p99")),
        *adding("", "latency_us"), ("start late p50 µs", percentile("start_late_us", "p50")), *cost("request"), BUSY, OTHERS],
    "trace": [
        *cost("request"), *cost("event"), RATE, ("events/s", spread(events_a_second, 0)), BUSY, OTHERS,
        ("TTFT p50 µs", percentile("ttft_us", "p50")), ("TTFT p99 µs", percentile("ttft_us", "p99")),
        *adding("TTFT ", "ttft_us"), RSS],
    "stream": [
        ("KiB/stream", spread(lambda cell: cell.get("kib_per_stream"))), (TIMES_HAPROXY, "kib_per_stream"),
        ("RSS MiB", spread(lambda cell: cell["rss_kib"] / 1024 if "rss_kib" in cell else None, 1)),
        ("RSS before MiB", spread(lambda cell: cell["rss_before_kib"] / 1024 if "rss_before_kib" in cell else None, 1)),
        ("streams", spread(lambda cell: cell["load"]["requests"], 0))],
}


def columns_of(shape):
    """Its columns; of two legs with the best peer, who is what they are compared with, and without a log."""
    columns = []
    for title, column in COLUMNS[shape["unit"]]:
        if title == TIMES_HAPROXY and shape["pd"]:
            columns += [("× best peer", ratio(column, "peer")), ("× HAProxy, one leg", ratio(column))]
        elif title == TIMES_HAPROXY:
            columns.append((title, ratio(column)))
        elif title != "logged" or not shape["pd"]:
            columns.append((title, column))
    return columns


def grid(head, rows):
    """A Markdown table with aligned columns."""
    widths = [max(len(row[at]) for row in [head, *rows]) for at in range(len(head))]
    line = lambda row: "| " + " | ".join(text.ljust(width) for text, width in zip(row, widths)) + " |"
    return "\n".join([line(head), "|" + "|".join("-" * (width + 2) for width in widths) + "|", *map(line, rows)])
