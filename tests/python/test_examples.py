"""The examples in Python, as their pages say."""

import pathlib
import re
import subprocess
import sys

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"


def test_digits(client):
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "04_python" / "train.py"), "--steps", "600"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = re.search(
        r"600 steps on here/\S+ in \S+ s; (\S+) % of 297 unseen digits are right", done.stdout
    )
    assert said and float(said[1]) > 90, done.stdout
