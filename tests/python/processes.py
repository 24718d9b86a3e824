"""Processes by what their command lines name."""

import pathlib


def naming(*words: str) -> list[int]:
    """Those whose command lines have all of these words."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if all(w in line for w in words):
            found.append(int(entry.name))
    return found
