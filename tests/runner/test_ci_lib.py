"""Tests of .ci/lib.sh on a project of its own: test_ci_lib.py PATH-OF-lib.sh."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

LIB = pathlib.Path(sys.argv.pop())
RUN = """#!/bin/bash
. "$(dirname "$0")/lib.sh"
enter work fresh
good() { echo "3 passed, 0 failed"; env; pwd; }
bad() { echo before; false; echo after; }
slow() { echo begun; sleep 1000 & sleep 1000; }
fetch() { local folder; folder=$(download one==1 two==2) || return 1; ls "$folder"; }
for s in "$@"; do step "$s" "$s"; done
echo "all passed"
"""


class CiLib(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="opwire ci "))
        self.addCleanup(shutil.rmtree, self.folder)
        self.cache = self.folder / "the cache"
        project = self.folder / "project"
        (project / ".ci").mkdir(parents=True)
        shutil.copy(LIB, project / ".ci/lib.sh")
        self.run_file = project / ".ci/run"
        self.run_file.write_text(RUN)
        self.run_file.chmod(0o755)
        # A pip that leaves a part of what it was to fetch, and fails unless PIP_WORKS.
        python = project / "build/venv/bin/python"
        python.parent.mkdir(parents=True)
        python.write_text(
            '#!/bin/bash\nwhile [ "$1" != --target ]; do shift; done\n'
            'mkdir -p "$2"; echo > "$2/part"; [ -n "$PIP_WORKS" ]\n'
        )
        python.chmod(0o755)
        git = ["git", "-C", project, "-c", "user.name=a", "-c", "user.email=a@b"]
        for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "all"]):
            subprocess.run([*git, *command], check=True)

    def start(self, *steps, **environment):
        return subprocess.Popen(
            [self.run_file, *steps],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "OPWIRE_CI_CACHE": str(self.cache), **environment},
        )

    def run_steps(self, *steps, **environment):
        process = self.start(*steps, **environment)
        out = process.communicate(timeout=60)[0]
        return process.returncode, out

    def start_slow(self):
        process = self.start("slow")
        log = self.cache / "logs/work-slow.log"
        for _ in range(1000):
            if log.exists() and "begun" in log.read_text():
                break
            time.sleep(0.01)
        group = int((self.cache / "running").read_text().split()[1])
        return process, group

    def expect_ended(self, group):
        for _ in range(1000):
            try:
                os.killpg(group, 0)
            except ProcessLookupError:
                return
            time.sleep(0.01)
        self.fail(f"process group {group} still runs")

    def test_a_failed_step_ends_the_run_and_is_shown_by_the_next(self):
        code, out = self.run_steps("good", "bad", "good")
        self.assertEqual((code, out.count("== good")), (1, 1), out)
        self.assertIn("before", out)
        self.assertNotIn("after\n", out)
        code, out = self.run_steps("good")
        self.assertEqual(code, 0, out)
        self.assertIn("steps that failed before", out)
        self.assertIn("step work-bad of commit", out)
        self.assertIn("all passed", out)

    def test_the_callers_settings_choose_nothing(self):
        code, out = self.run_steps("good", GTEST_FILTER="None", OPWIRE_PROGRAMS="1", BUILD="b")
        self.assertEqual(code, 0, out)
        log = (self.cache / "logs/work-good.log").read_text()
        for name in ("GTEST_FILTER=", "OPWIRE_PROGRAMS=", "BUILD="):
            self.assertNotIn(f"\n{name}", log)
        self.assertIn(f"\n{self.cache}/work/opwire\n", log)

    def test_a_failed_download_fails_and_is_not_kept(self):
        code, out = self.run_steps("fetch")
        self.assertEqual(code, 1, out)
        self.assertIn("download: one==1 two==2: pip failed", out)
        self.assertFalse((self.cache / "tools/one==1,two==2").exists())
        self.assertEqual(self.run_steps("fetch", PIP_WORKS="1")[0], 0)
        self.assertTrue((self.cache / "tools/one==1,two==2/part").exists())

    def test_a_signal_ends_the_step_and_keeps_its_log(self):
        process, group = self.start_slow()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 143)
        self.expect_ended(group)
        log = (self.cache / "failed/work-slow.log").read_text()
        self.assertEqual(log, "step work-slow: interrupted: SIGTERM\nbegun\n")

    def test_what_a_killed_run_left_is_ended_by_the_next(self):
        process, group = self.start_slow()
        process.kill()
        process.wait()
        process.stdout.close()
        code, out = self.run_steps("good")
        self.assertEqual(code, 0, out)
        self.assertIn("step work-slow: interrupted: the script was killed", out)
        self.expect_ended(group)


if __name__ == "__main__":
    unittest.main()
