"""What was checked and how it went: lines while it runs, and a file to write the documentation from."""

import json
import sys
import time


class Report:
    def __init__(self, kind):
        self.kind, self.rows, self.began = kind, [], time.monotonic()
        self.keys, self.notes = [], []

    def check(self, name, good, detail=""):
        self.rows.append({"name": name, "ok": bool(good), "detail": str(detail)})
        print(f"[{time.monotonic() - self.began:6.1f}] {self.kind} {'ok  ' if good else 'FAIL'} {name}: {detail}", flush=True)

    def note(self, text):
        self.notes.append(text)
        print(f"[{time.monotonic() - self.began:6.1f}] {self.kind}      {text}", flush=True)

    def close(self, path):
        path.write_text(json.dumps({"engine": self.kind, "checks": self.rows, "notes": self.notes, "keys": self.keys}, indent=1))
        failed = sum(not row["ok"] for row in self.rows)
        print(f"{len(self.rows) - failed} passed, {failed} failed", flush=True)
        sys.exit(1 if failed else 0)
