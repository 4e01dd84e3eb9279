"""Prints the table of body keys of docs/engines.md from the results: table.py DIR"""

import json
import pathlib
import sys

folder = pathlib.Path(sys.argv[1])
found = {}
for kind in ("vllm", "sglang"):
    path = folder / f"results.{kind}.json"
    for row in json.loads(path.read_text())["keys"] if path.exists() else []:
        found.setdefault(row["key"], {})[kind] = row


def cell(row):
    if row is None:
        return ""
    alone = row["alone"].split(":")[0]
    if row["equal"] and row["stream_equal"]:
        return f"same ({alone})"
    if row["equal"]:
        return f"as a whole the same ({alone}), the stream differs"
    pair = " ".join(row["pair"].split()).replace("|", "\\|")
    return f"alone {alone}; pair {pair[:60]}"


print("| request | vLLM | SGLang |\n|---|---|---|")
for key, rows in found.items():
    print(f"| {key} | {cell(rows.get('vllm'))} | {cell(rows.get('sglang'))} |")
