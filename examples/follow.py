"""Types what pages say, top to bottom in one terminal, and checks that every command succeeds: follow.py FOLDER PAGE...

FOLDER becomes the working directory, with the checkout's examples and docs in it. A page gives the
commands behind "$ " in blocks marked `console`, the blocks marked `python`, and unmarked blocks
that begin with one of the project's programs.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ("build/bin/", "opwire ")
SECONDS = 300


def commands_of(page: str, folder: Path) -> list[str]:
    """The commands of a page, in their order."""
    found: list[str] = []
    for mark, block in re.findall(r"^```(\w*)\n(.*?)^```$", page, re.S | re.M):
        if mark == "console":
            found += [line[2:] for line in block.splitlines() if line.startswith("$ ")]
        elif mark == "python":
            script = folder / f"block{len(list(folder.glob('block*.py')))}.py"
            script.write_text(block)
            found.append(f"python {script.name}")
        elif not mark and block.startswith(PROGRAMS):
            found += block.splitlines()
    return found


def main() -> int:
    folder, pages = Path(sys.argv[1]), sys.argv[2:]
    for name in ("examples", "docs"):
        (folder / name).symlink_to(ROOT / name)
    script = []
    for page in pages:
        for command in commands_of((ROOT / page).read_text(), folder):
            script.append(f"echo {shlex.quote(f'{page}: {command}')}\n{command}")
            # A user who types gives what starts in the background about a second.
            background = command.split("#")[0].rstrip().endswith("&")
            script.append("sleep 1" if background else "[ $? -eq 0 ] || exit 1")
    log = folder / "terminal.log"
    with log.open("w") as output:
        terminal = subprocess.Popen(
            ["bash", "-c", "\n".join(script)],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            code = terminal.wait(SECONDS)
            why = f"the last command ended with code {code}" if code else ""
        except subprocess.TimeoutExpired:
            why = f"the pages took longer than {SECONDS} s"
        try:
            os.killpg(terminal.pid, signal.SIGTERM)
        except ProcessLookupError:
            pass
    if why:
        print(log.read_text(), why, sep="\n")
        return 1
    print(f"{len(script) // 2} commands of {len(pages)} pages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
