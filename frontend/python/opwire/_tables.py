"""Facts as tables: text on a terminal, HTML in a notebook."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from typing import Any


def bytes_text(n: float) -> str:
    """ "1.5 GiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(n) < 1024:
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.3g} {unit}"
        n /= 1024
    return f"{n:.3g} TiB"


class Table(Sequence[dict[str, Any]]):
    """Rows of named facts. Printed as text, in a notebook as HTML; `raw` is what they were made from."""

    def __init__(
        self, title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], raw: Any = None
    ):
        self.title = printable(title)
        self.columns = list(columns)
        self.raw = raw
        self._rows = [dict(zip(columns, row)) for row in rows]

    def __getitem__(self, i: Any) -> Any:
        return self._rows[i]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._rows)

    def _cells(self) -> list[list[str]]:
        return [[_text(row[c]) for c in self.columns] for row in self._rows]

    def _numbers(self) -> list[bool]:
        return [
            bool(self._rows) and all(isinstance(row[c], (int, float)) for row in self._rows)
            for c in self.columns
        ]

    def __repr__(self) -> str:
        lines = [[c.upper() for c in self.columns], *self._cells()]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.columns))]
        right = self._numbers()
        shown = [
            "  ".join(
                cell.rjust(w) if r else cell.ljust(w) for cell, w, r in zip(line, widths, right)
            ).rstrip()
            for line in lines
        ]
        return "\n".join([self.title, *shown])

    def _repr_html_(self) -> str:
        right = self._numbers()
        head = "".join(
            f"<th style='text-align:{'right' if r else 'left'}'>{html.escape(c)}</th>"
            for c, r in zip(self.columns, right)
        )
        body = "".join(
            "<tr>"
            + "".join(
                f"<td style='text-align:{'right' if r else 'left'}'>{html.escape(cell)}</td>"
                for cell, r in zip(line, right)
            )
            + "</tr>"
            for line in self._cells()
        )
        return f"<table><caption>{html.escape(self.title)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_text, value))
    return printable(str(value))


def printable(text: str) -> str:
    """Fit for a terminal: what could control or reorder it is escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def checked_name(name: Any, what: str) -> str:
    """The name; ValueError if it has surrogates, which UTF-8 does not encode. TypeError if it is no
    str.
    """
    if not isinstance(name, str):
        raise TypeError(f"{what}: expected a str, got {type(name).__name__}")
    at = next((i for i, c in enumerate(name) if "\ud800" <= c <= "\udfff"), None)
    if at is not None:
        raise ValueError(
            f"{what}: expected characters of Unicode, got the surrogate {ascii(name[at])[1:-1]} at "
            f"position {at} of {name!a}"
        )
    return name


def of_devices(executors: list[dict[str, Any]]) -> Table:
    """Who is there."""
    columns = [
        "executor",
        "device",
        "name",
        "arch",
        "memory",
        "free",
        "sessions",
        "queued",
        "running",
    ]
    rows = [
        [
            e["id"],
            e["device"],
            e["device_name"],
            e["arch"],
            bytes_text(e["memory_bytes"]),
            bytes_text(e["free_memory"]),
            e["sessions"],
            e["queued"],
            e["running"] or "idle",
        ]
        for e in executors
    ]
    return Table(_count(len(rows), "executor"), columns, rows, executors)


def of_sessions(sessions: list[dict[str, Any]]) -> Table:
    """The sessions of an executor."""
    columns = [
        "id",
        "name",
        "principal",
        "clients",
        "tensors",
        "bytes",
        "programs",
        "runs",
        "device ms",
    ]
    rows = [
        [
            s["id"],
            s["name"],
            s["principal"],
            sum(bool(c["connected"]) for c in s["clients"]),
            s["tensors"],
            bytes_text(s["bytes"]),
            s["programs"],
            s["runs"],
            float(s["device_ms"]),
        ]
        for s in sessions
    ]
    return Table(_count(len(rows), "session"), columns, rows, sessions)


def of_ops(ops: list[dict[str, Any]]) -> Table:
    """What an executor runs."""
    return Table(
        _count(len(ops), "op"),
        ["op", "signature", "dtypes", "variants"],
        [[o["op"], o["signature"], o["dtypes"], o["variants"]] for o in ops],
        ops,
    )


def of_tensors(tensors: list[dict[str, Any]]) -> Table:
    """What a session holds."""
    rows = [
        [
            t["id"],
            t["name"],
            f"{t['dtype'].name}{list(t['shape'])}" if t["dtype"] else "",
            bytes_text(t["bytes"]),
            "yes" if t["usable"] else "no",
        ]
        for t in tensors
    ]
    return Table(
        _count(len(rows), "tensor"), ["id", "name", "type", "bytes", "usable"], rows, tensors
    )


def of_grants(grants: dict[str, Any]) -> Table:
    """What a user's sessions share."""
    rows = [
        [
            g["session"]["name"] or g["session"]["id"],
            g["name"],
            g["type"],
            bytes_text(g["bytes"]),
            g["to"]["session"] or "all",
            g["to"]["principal"],
            g["capability"],
        ]
        for g in grants["grants"]
    ]
    return Table(
        _count(grants["count"], "grant"),
        ["session", "name", "tensor", "bytes", "to session", "of", "capability"],
        rows,
        grants,
    )


def of_plan(plan: dict[str, Any]) -> Table:
    """How a program runs."""
    rows = []
    for step in plan["steps"]:
        group = step.get("group")
        what = " ".join(group["ops"]) if group else step["op"]
        places = ", ".join(
            f"{w['to']}{'' if w['to'].startswith('result') else ' +' + str(w['at'])}"
            for w in step.get("writes", [])
        )
        ends = "; ".join(group.get("ends", []) if group else step.get("alone", []))
        rows.append(
            [
                step.get("value", ""),
                what,
                step["label"],
                bytes_text(step.get("moved", 0)),
                float(step.get("flops", 0)),
                places,
                ends,
            ]
        )
    title = f"@{plan['function']}: {_count(len(rows), 'step')}, {bytes_text(plan['scratch_bytes'])} of scratch memory"
    return Table(
        title, ["value", "ops", "variant", "moves", "flops", "writes", "fusion ends as"], rows, plan
    )


def of_profile(name: str, steps: list[tuple[int, int, str, int]]) -> Table:
    """What each step of a run took."""
    total = sum(ns for *_, ns in steps)
    rows = [
        [
            label,
            "" if label.startswith("copy@") else node,
            ns / 1e3,
            100 * ns / total if total else 0.0,
        ]
        for _, node, label, ns in sorted(steps, key=lambda s: -s[3])
    ]
    return Table(
        f"@{name}: {total / 1e3:.1f} us on the device",
        ["step", "node", "us", "percent"],
        rows,
        steps,
    )
