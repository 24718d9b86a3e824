"""Processes by what their command lines name, and those that serve a test alone."""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys


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


def end(directory: str) -> None:
    """What was started in a runtime directory of a test's own, and the directory."""
    for pid in naming(directory):  # they know it by their command lines
        if pid != os.getpid():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
    shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def served(tmp_path, *options):
    """The environment of processes that `opwire up` with these options serves, in a runtime directory of their own."""
    (tmp_path / "run").mkdir(mode=0o700)
    environment = {
        **os.environ,
        "OPWIRE_RUNTIME_DIR": str(tmp_path / "run"),
        "PYTHONPATH": os.pathsep.join(str(pathlib.Path(p).absolute()) for p in sys.path if p),
    }
    up = subprocess.Popen(
        [os.environ.get("OPWIRE_PROGRAM", "opwire"), "up", *options],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        while "ready" not in (line := up.stdout.readline()) and line:
            pass
        yield environment
    finally:
        up.send_signal(signal.SIGTERM)
        up.wait(60)
