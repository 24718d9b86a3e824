"""Tests of run_shard.py: test_run_shard.py PROGRAM, where PROGRAM is sample.cc."""

import datetime
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree as ET

import run_shard

SAMPLE = sys.argv.pop()
SCRIPT = pathlib.Path(__file__).with_name("run_shard.py")


def run(cases, *options, **environment):
    done = subprocess.run(
        [sys.executable, SCRIPT, *options, SAMPLE],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "GTEST_FILTER": cases, **environment},
    )
    return done.returncode, done.stdout


class RunShard(unittest.TestCase):
    def expect(self, done, code, totals):
        self.assertEqual(done[0], code, done[1])
        self.assertEqual(done[1].rstrip().split("\n")[-1], totals, done[1])

    def test_all_pass(self):
        self.expect(run("Sample.Passes*:Sample.Skips"), 0, "2 passed, 0 failed, 1 skipped")

    def test_failures_are_shown_and_others_are_not(self):
        done = run("Sample.Passes:Sample.Fails:*IsOdd*")
        self.expect(done, 1, "3 passed, 2 failed, 0 skipped")
        self.assertIn("what the case says", done[1])
        self.assertIn("== Some/Numbered.IsOdd/1\n", done[1])
        self.assertNotIn("== Sample.Passes", done[1])

    def test_the_beginning_and_the_end_of_long_failures_are_shown(self):
        done = run("Sample.FailsAtLength")
        self.expect(done, 1, "0 passed, 1 failed, 0 skipped")
        for shown in ("what the case says", " lines more)", "line 299"):
            self.assertIn(shown, done[1])
        self.assertNotIn("line 100\n", done[1])

    def test_of_much_output_the_beginning_and_the_end_are_kept(self):
        with tempfile.TemporaryDirectory() as folder:
            file = f"{folder}/sample.xml"
            done = run("Sample.FailsAfterALot", "--junit", file)
            text = ET.parse(file).getroot()[0][0][0].text
        self.expect(done, 1, "0 passed, 1 failed, 0 skipped")
        self.assertIn("the first line", done[1])
        self.assertIn("what the case says", done[1])
        self.assertLess(len(text), 1 << 20)
        self.assertRegex(text, r"\(\d{4} lines dropped\)")

    def test_a_killed_runner_leaves_no_program(self):
        runner = subprocess.Popen(
            [sys.executable, SCRIPT, SAMPLE],
            stdout=subprocess.DEVNULL,
            env={**os.environ, "GTEST_FILTER": "Sample.Hangs"},
        )
        children = pathlib.Path(f"/proc/{runner.pid}/task/{runner.pid}/children")
        child = None
        for _ in range(1000):
            ids = children.read_text().split()
            if ids and b"gtest_flagfile" in pathlib.Path(f"/proc/{ids[0]}/cmdline").read_bytes():
                child = ids[0]
                break
            time.sleep(0.01)
        self.assertIsNotNone(child)
        runner.kill()
        runner.wait()
        for _ in range(1000):
            if not os.path.exists(f"/proc/{child}"):
                return
            time.sleep(0.01)
        self.fail(f"process {child} still runs")

    def test_the_rest_runs_after_a_crash(self):
        done = run("Sample.*-Sample.Hangs:Sample.FailsTheProcess:Sample.FailsA*")
        self.expect(done, 1, "2 passed, 3 failed, 1 skipped")
        self.assertIn("Sample.Crashes: killed by SIGSEGV", done[1])
        self.assertIn("before the crash", done[1])
        self.assertIn("Sample.Exits: exit code 3", done[1])

    def test_a_case_has_a_limit_of_time(self):
        done = run("Sample.Hangs:Sample.Skips:Sample.Passes", "--case-seconds", "1")
        self.expect(done, 1, "1 passed, 1 failed, 1 skipped")
        self.assertIn("Sample.Hangs: took longer than 1 s", done[1])

    def test_a_process_that_fails_after_its_cases_is_a_failure(self):
        done = run("Sample.Passes:Sample.FailsTheProcess")
        self.expect(done, 1, "2 passed, 1 failed, 0 skipped")
        self.assertIn("failed after its cases: exit code 66", done[1])

    def test_shards_divide_the_cases(self):
        ran = [
            re.search(
                r"(\d+) passed, (\d+) failed, (\d+) skipped",
                run("*IsOdd*:Sample.Passes*", "--shards", "3", "--shard", str(i))[1],
            )
            for i in range(3)
        ]
        self.assertEqual([sum(map(int, m.groups())) for m in ran], [2, 2, 1])

    def test_no_case_is_no_failure(self):
        self.expect(run("Nothing.*"), 0, "0 passed, 0 failed, 0 skipped")

    def test_filters_are_joined(self):
        done = subprocess.run(
            [sys.executable, SCRIPT, SAMPLE, "--gtest_filter=Sample.Passes*"],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "GTEST_FILTER": "*Too"},
        )
        self.expect((done.returncode, done.stdout), 0, "1 passed, 0 failed, 0 skipped")

    def test_junit(self):
        with tempfile.TemporaryDirectory() as folder:
            file = f"{folder}/deep/sample.xml"
            run("Sample.Passes:Sample.Crashes:Sample.Skips", "--junit", file)
            suite = ET.parse(file).getroot()[0]
        self.assertEqual((suite.get("name"), suite.get("tests")), ("sample", "3"))
        self.assertEqual((suite.get("failures"), suite.get("skipped")), ("1", "1"))
        crashed = next(c for c in suite if c.get("name") == "Crashes")
        self.assertIn("SIGSEGV", crashed[0].get("message"))
        self.assertIn("before the crash", crashed[0].text)

    def test_quarantine(self):
        today = datetime.date(2026, 11, 28)
        with tempfile.NamedTemporaryFile("w") as file:

            def read(text):
                pathlib.Path(file.name).write_text(text)
                return run_shard.read_quarantine(file.name, today)

            self.assertEqual(read("# none\n\nA.B 2026-11-28 late\n"), {"A.B"})
            with self.assertRaisesRegex(run_shard.Usage, "quarantine of A.B ended on 2026-11-27"):
                read("A.B 2026-11-27 late\n")
            with self.assertRaisesRegex(run_shard.Usage, ":1: expected 'CASE YYYY-MM-DD CAUSE'"):
                read("A.B tomorrow late\n")
            with self.assertRaisesRegex(run_shard.Usage, "at most 5 cases, got 6"):
                read("".join(f"A.B{i} 2026-12-01 late\n" for i in range(6)))
            day = datetime.date.today() + datetime.timedelta(1)
            pathlib.Path(file.name).write_text(f"Sample.Fails {day} a test of this file\n")
            both = run("Sample.Fails:Sample.FailsTheProcess", "--quarantine", file.name)
            done = run("Sample.Passes:Sample.Fails", "--quarantine", file.name)
        self.expect(both, 1, "1 passed, 1 failed, 1 skipped")
        self.expect(done, 0, "1 passed, 0 failed, 1 skipped")
        self.assertIn("failed (quarantined): Sample.Fails", done[1])


if __name__ == "__main__":
    unittest.main()
