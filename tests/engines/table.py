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
    if row["equal"] and row["stream_equal"]:
        return f"same ({row['alone']})".replace("|", "\\|").replace("\n", " ")
    how = "" if row["equal"] else f"alone {row['alone']}; pair {row['pair']}"
    if not row["stream_equal"]:
        how += "; the stream differs"
    return how.strip("; ").replace("|", "\\|").replace("\n", " ")


print("| request | vLLM | SGLang |\n|---|---|---|")
for key, rows in found.items():
    print(f"| {key} | {cell(rows.get('vllm'))} | {cell(rows.get('sglang'))} |")
