#!/usr/bin/env python3
"""Runs one shard of a GoogleTest program: many cases a process, each reported by name.

    run_shard.py [--shards N] [--shard I] [--junit FILE] [--case-seconds S]
                 [--quarantine FILE] PROGRAM [ARGUMENT...]

The cases of PROGRAM that match GTEST_FILTER (and --gtest_filter among the arguments) are numbered
in the program's order. Shard I of N runs every N-th of them, in one process. If a case ends the
process or takes longer than S seconds, it has failed, and the cases after it run in a new process.
Other settings of GoogleTest, such as GTEST_SHUFFLE, reach the program unchanged.

The output of a case is printed if the case fails. The last line is "N passed, N failed, N skipped".
The exit code is 0 if no case failed, 1 if one did, 2 for wrong usage. A case of the quarantine file
may fail without an effect on the exit code (see read_quarantine).
"""

import argparse
import collections
import ctypes
import dataclasses
import datetime
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ET

LISTED_SUITE = re.compile(r"^([^\s#]\S*\.)(?:\s+#.*)?$")
LISTED_CASE = re.compile(r"^  (\S+)")
BEGUN = re.compile(r"\[ RUN      \] (\S+)\s*$")
ENDED = re.compile(r"\[ +(OK|FAILED|SKIPPED) +\] (\S+?)(?:, where .*)? \((\d+) ms\)\s*$")
MOST_QUARANTINED = 5
LINES_SHOWN = 200  # of a failed case
FIRST_SHOWN = 50  # of these from its beginning: what failed stands before the logs of its processes
BYTES_KEPT = 1 << 20  # of one case's output: one half from its beginning, one from its end
SLOWEST_SHOWN = 3
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)


@dataclasses.dataclass
class Result:
    """What happened to one case."""

    status: str  # "passed", "failed", "skipped"
    seconds: float
    output: str
    reason: str = ""  # of a failure that the case did not report itself


class Usage(Exception):
    """The command line or a file that it names is wrong."""


def read_quarantine(file, today):
    """Returns the names of the cases that may fail.

    A line holds the case, the last day of its quarantine and the cause: `Suite.Case 2027-01-31 why`.

    Raises
    ------
    Usage
        More than MOST_QUARANTINED cases, a line of another form, or a day that has passed.
    """
    cases = {}
    for number, line in enumerate(pathlib.Path(file).read_text().split("\n"), 1):
        if not line.strip() or line.startswith("#"):
            continue
        words = line.split(maxsplit=2)
        try:
            case, day, _cause = words[0], datetime.date.fromisoformat(words[1]), words[2]
        except (IndexError, ValueError):
            raise Usage(
                f"{file}:{number}: expected 'CASE YYYY-MM-DD CAUSE', got {line!r}"
            ) from None
        if day < today:
            raise Usage(f"{file}:{number}: the quarantine of {case} ended on {day}: fix the case")
        cases[case] = number
    if len(cases) > MOST_QUARANTINED:
        raise Usage(f"{file}: expected at most {MOST_QUARANTINED} cases, got {len(cases)}")
    return set(cases)


def list_cases(command):
    """Returns the full names of the program's cases that all filters match."""
    cases = _listed(command)
    if "GTEST_FILTER" in os.environ and any(a.startswith("--gtest_filter") for a in command):
        also = _listed([a for a in command if not a.startswith("--gtest_filter")])
        cases = [c for c in cases if c in set(also)]
    return cases


def _listed(command):
    listed = subprocess.run(
        [*command, "--gtest_list_tests"],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if listed.returncode != 0:
        print(listed.stdout[-4000:] + listed.stderr[-4000:])
        raise Usage(f"{command[0]}: --gtest_list_tests: exit code {listed.returncode}")
    cases, suite = [], ""
    for line in listed.stdout.split("\n"):
        if m := LISTED_CASE.match(line):
            name = suite + m[1]
            if suite and not re.search(r"(^|[./])DISABLED_", name):
                cases.append(name)
        elif m := LISTED_SUITE.match(line):
            suite = m[1]
    return cases


class Output:
    """The lines of one case: the first and the last half of BYTES_KEPT."""

    def __init__(self):
        self._first, self._last = [], collections.deque()
        self._room, self._bytes, self._dropped = BYTES_KEPT // 2, 0, 0

    def append(self, line):
        """Adds a line. One that is longer than half of BYTES_KEPT loses its middle."""
        most = BYTES_KEPT // 2
        if len(line) > most:
            line = line[: most // 2] + "..." + line[-most // 2 + 3 :]
        if len(line) <= self._room and not self._last:
            self._first.append(line)
            self._room -= len(line)
            return
        self._last.append(line)
        self._bytes += len(line)
        while self._bytes > most:
            self._bytes -= len(self._last.popleft())
            self._dropped += 1

    def __str__(self):
        dropped = [f"... ({self._dropped} lines dropped)\n"] if self._dropped else []
        return "".join([*self._first, *dropped, *self._last])


def _end_with_parent():
    """Runs in the child before the program: the kernel kills it when this process ends."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Process:
    """One process of the program, with a limit of time for each case."""

    def __init__(self, command, cases, case_seconds):
        self.results = {}
        self.running = None  # the name of the case
        self.begun = time.monotonic()
        self.timed_out = False
        self.outside = collections.deque(maxlen=LINES_SHOWN)  # output between cases
        self._output = Output()
        self._case_seconds = case_seconds
        self._flags = tempfile.NamedTemporaryFile("w", prefix="gtest-flags-", suffix=".txt")
        self._flags.write("--gtest_filter=" + ":".join(cases) + "\n")
        self._flags.flush()
        environment = {k: v for k, v in os.environ.items() if k != "GTEST_FILTER"}
        kept = [a for a in command if not a.startswith("--gtest_filter")]
        self._child = subprocess.Popen(
            [*kept, f"--gtest_flagfile={self._flags.name}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
            preexec_fn=_end_with_parent,
        )

    def wait(self):
        """Waits for the end of the process and returns its exit code; negative: a signal."""
        reader = threading.Thread(target=self._read, daemon=True)
        reader.start()
        try:
            while self._child.poll() is None:
                if time.monotonic() - self.begun > self._case_seconds:
                    self.timed_out = True
                    self.kill(signal.SIGABRT)  # sanitizers print where the program is
                    try:
                        self._child.wait(5)
                    except subprocess.TimeoutExpired:
                        pass
                    self.kill(signal.SIGKILL)
                    self._child.wait()
                time.sleep(0.02)
        finally:
            self.kill(signal.SIGKILL)  # what it started in its own group
        # A process that it left in another group may hold the pipe open.
        reader.join(1)
        self._flags.close()
        return self._child.returncode

    def kill(self, number):
        """Sends a signal to the process and to all that it started in its group."""
        try:
            os.killpg(self._child.pid, number)
        except ProcessLookupError:
            pass

    def fail_running(self, reason):
        """Notes the case that was running when the process ended as failed."""
        self._end(self.running, "failed", time.monotonic() - self.begun, reason)

    def _read(self):
        for raw in self._child.stdout:
            line = raw.decode(errors="replace")
            if self.running is None:
                if m := BEGUN.search(line):
                    self.running, self.begun = m[1], time.monotonic()
                else:
                    self.outside.append(line)
                continue
            m = ENDED.search(line)
            if m and m[2] == self.running:
                status = {"OK": "passed", "FAILED": "failed", "SKIPPED": "skipped"}[m[1]]
                self._output.append(line[: m.start()])
                self._end(self.running, status, int(m[3]) / 1e3)
                continue
            self._output.append(line)

    def _end(self, name, status, seconds, reason=""):
        self.results[name] = Result(status, seconds, str(self._output), reason)
        self.running, self.begun, self._output = None, time.monotonic(), Output()


def run(command, cases, case_seconds):
    """Runs the cases, in as many processes as it takes; returns results by name."""
    results, left, stuck = {}, list(cases), 0
    while left:
        process = Process(command, left, case_seconds)
        Interrupt.process = process
        code = process.wait()
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        ended_in_case = process.running is not None
        if ended_in_case:
            name = process.running
            limit = f"took longer than {case_seconds:g} s" if process.timed_out else how
            process.fail_running(f"{name}: {limit}")
        results |= process.results
        left = [c for c in left if c not in process.results]
        failed = any(r.status == "failed" for r in process.results.values())
        outside = "".join(process.outside)
        # Failed cases make it 1. A leak, a data race or an environment's TearDown: no case says so.
        if not ended_in_case and (code not in (0, 1) or (code == 1 and not failed)):
            when = "before its first case" if not process.results else "after its cases"
            results[f"{pathlib.Path(command[0]).name}.process"] = Result(
                "failed", 0, outside, f"the process failed {when}: {how}"
            )
        if not process.results or (left and code == 0):
            stuck += 1
        if stuck:
            for name in left:
                results[name] = Result("failed", 0, outside, f"{name}: did not run: {how}")
            break
    return results


class Interrupt:
    """Ends the program and names the running case if this process is told to end."""

    process = None

    @staticmethod
    def handle(number, _frame):
        process = Interrupt.process
        if process:
            process.kill(signal.SIGKILL)
            print(f"interrupted in {process.running or 'no case'}", flush=True)
        os._exit(128 + number)


def write_junit(file, suite, results, seconds):
    """Writes a JUnit file of all results."""
    count = collections.Counter(r.status for r in results.values())
    root = ET.Element("testsuites")
    node = ET.SubElement(
        root,
        "testsuite",
        name=suite,
        tests=str(len(results)),
        failures=str(count["failed"]),
        skipped=str(count["skipped"]),
        time=f"{seconds:.3f}",
    )
    for name, r in results.items():
        class_name, _, case = name.partition(".")
        one = ET.SubElement(
            node, "testcase", classname=class_name, name=case, time=f"{r.seconds:.3f}"
        )
        text = re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd]", "?", r.output)
        if r.status == "failed":
            ET.SubElement(one, "failure", message=r.reason or "failed").text = text
        elif r.status == "skipped":
            ET.SubElement(one, "skipped", message=text.strip()[-500:])
    path = pathlib.Path(file)
    path.parent.mkdir(parents=True, exist_ok=True)
    ET.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)


def report(results, quarantined):
    """Prints failures, the slowest cases and the totals; returns the number of failures."""
    failed = {n: r for n, r in results.items() if r.status == "failed"}
    for name, r in failed.items():
        lines = r.output.rstrip().split("\n")
        print(f"\n== {name}")
        if len(lines) > LINES_SHOWN:
            left_out = f"... ({len(lines) - LINES_SHOWN} lines more)"
            lines[FIRST_SHOWN : len(lines) - LINES_SHOWN + FIRST_SHOWN] = [left_out]
        print("\n".join(lines))
        if r.reason:
            print(r.reason)
    slowest = sorted(results.items(), key=lambda item: -item[1].seconds)[:SLOWEST_SHOWN]
    print("slowest: " + ", ".join(f"{n} {r.seconds:.1f} s" for n, r in slowest))
    for name in failed:
        print(f"failed{' (quarantined)' if name in quarantined else ''}: {name}")
    count = collections.Counter(r.status for r in results.values())
    excused = sum(name in quarantined for name in failed)
    print(
        f"{count['passed']} passed, {count['failed'] - excused} failed, "
        f"{count['skipped'] + excused} skipped",
        flush=True,
    )
    return count["failed"] - excused


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--shard", type=int, default=0)
    parser.add_argument("--junit")
    parser.add_argument("--case-seconds", type=float, default=300)
    parser.add_argument("--quarantine")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="PROGRAM [ARGUMENT...]")
    a = parser.parse_args()
    if not a.command or not 0 <= a.shard < a.shards:
        parser.error("expected a program, and a shard from 0 to the number of shards - 1")
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, Interrupt.handle)
    quarantined = read_quarantine(a.quarantine, datetime.date.today()) if a.quarantine else set()
    begun = time.monotonic()
    cases = list_cases(a.command)[a.shard :: a.shards]
    results = run(a.command, cases, a.case_seconds)
    if a.junit:
        suite = pathlib.Path(a.junit).stem
        write_junit(a.junit, suite, results, time.monotonic() - begun)
    return 1 if report(results, quarantined) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Usage as error:
        print(f"run_shard: {error}")
        sys.exit(2)
