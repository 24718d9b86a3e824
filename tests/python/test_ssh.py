"""A host that is reached by ssh.

It is an sshd of the test's own, with keys of its own, behind a proxy that delays and counts.
"""

import getpass
import os
import pathlib
import queue
import re
import shutil
import socket
import subprocess
import sys
import threading
import time

import pytest
from processes import naming

SSHD = shutil.which("sshd") or "/usr/sbin/sshd"
pytestmark = pytest.mark.skipif(
    not os.access(SSHD, os.X_OK) or shutil.which("ssh") is None,
    reason="needs ssh and sshd (openssh-server)",
)
DELAY = 0.05


class Proxy:
    """Forwards bytes after DELAY, in both directions.

    `turns` counts how often the direction with bytes changed to this side's.
    """

    def __init__(self, port):
        self.to = port
        self.turns, self.last = 0, ""
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self.to))
            for a, b, way in ((near, far, "out"), (far, near, "in")):
                threading.Thread(target=self.pump, args=(a, b, way), daemon=True).start()

    def pump(self, a, b, way):
        late = queue.Queue()
        threading.Thread(target=self.deliver, args=(late, b), daemon=True).start()
        data = b" "
        while data:
            try:
                data = a.recv(1 << 16)
            except OSError:
                data = b""
            if data and way == "out" and self.last != "out":
                self.turns += 1
            self.last = way
            late.put((time.monotonic() + DELAY, data))

    def deliver(self, late, b):
        try:
            while True:
                at, data = late.get()
                time.sleep(max(at - time.monotonic(), 0))
                if not data:
                    return b.shutdown(socket.SHUT_WR)
                b.sendall(data)
        except OSError:
            pass


@pytest.fixture
def box(tmp_path):
    """The proxy to a host with another runtime directory."""
    home = tmp_path / "there"
    home.mkdir(mode=0o700)
    run = lambda *words: subprocess.run(words, check=True, capture_output=True)  # noqa: E731
    for name in ("host", "user", "stranger"):
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name))
    shutil.copy(tmp_path / "user.pub", tmp_path / "authorized")
    os.chmod(tmp_path / "authorized", 0o600)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    program = os.path.dirname(os.environ["OPWIRE_PROGRAM"])
    (tmp_path / "sshd_config").write_text(
        f"ListenAddress 127.0.0.1:{port}\nHostKey {tmp_path}/host\nAuthorizedKeysFile {tmp_path}/authorized\nStrictModes no\nPidFile none\nUsePAM no\nPermitRootLogin yes\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n"
        f"SetEnv PATH={program}:/usr/bin:/bin OPWIRE_RUNTIME_DIR={home}\n"
    )
    if os.getuid() == 0:
        os.makedirs("/run/sshd", exist_ok=True)
    server = subprocess.Popen(
        [SSHD, "-D", "-e", "-f", str(tmp_path / "sshd_config")], stderr=subprocess.PIPE
    )
    for _ in range(100):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            break
        except OSError:
            time.sleep(0.05)
    proxy = Proxy(port)
    (tmp_path / "config").write_text(
        f"Host gpubox\n  HostName 127.0.0.1\n  Port {proxy.port}\nHost *\n  StrictHostKeyChecking no\n  UserKnownHostsFile {tmp_path}/known\n  IdentitiesOnly yes\n  LogLevel ERROR\n"
    )
    folder = tmp_path / "bin"
    folder.mkdir()
    ssh = folder / "ssh"  # as a user's configuration would have it
    ssh.write_text(
        f'#!/bin/sh\nexec {shutil.which("ssh")} -F {tmp_path}/config -i ${{SSH_KEY:-{tmp_path}/user}} "$@"\n'
    )
    ssh.chmod(0o755)
    proxy.env = {**os.environ, "PATH": f"{folder}:{program}:{os.environ['PATH']}"}
    proxy.address = f"ssh://{getpass.getuser()}@127.0.0.1:{proxy.port}"
    proxy.folder, proxy.home = tmp_path, home
    yield proxy
    proxy.listener.close()
    server.terminate()
    server.wait()
    for pid in naming(str(home)):
        if pid != os.getpid():
            os.kill(pid, 15)


CODE = """
import sys
import opwire as ow
c = ow.connect(ADDRESS)
print(c.device)
f = ow.jit(lambda x: x * 2.0 + 1.0)
x = ow.ones(8)
print(f(x).tolist())
sys.stdout.flush()
sys.stdin.readline()
for _ in range(20):
    f(x).numpy()
print("done")
sys.stdout.flush()
sys.stdin.readline()
"""


def test_a_notebook_uses_a_host_by_ssh(box):
    notebook = subprocess.Popen(
        [sys.executable, "-c", CODE.replace("ADDRESS", repr(box.address))],
        env=box.env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    device = notebook.stdout.readline()
    assert "127.0.0.1" in device, notebook.communicate()[1]
    assert notebook.stdout.readline() == str([3.0] * 8) + "\n"
    time.sleep(0.5)  # replies to dropped requests
    idle = box.turns
    time.sleep(2)
    idle = (box.turns - idle) / 2  # heartbeats per second
    before, begun = box.turns, time.monotonic()
    notebook.stdin.write("\n")
    notebook.stdin.flush()
    assert notebook.stdout.readline() == "done\n"
    assert box.turns - before - idle * (time.monotonic() - begun) <= 1.2 * 20, (
        "a call is a round trip"
    )
    # After a kill it leaves no ssh process.
    notebook.kill()
    notebook.wait()
    notebook.stdin.close()
    for _ in range(100):
        left = [p for p in naming(box.address) if p != os.getpid()]
        if not left:
            break
        time.sleep(0.1)
    assert not left


def test_what_ssh_says_is_told(box):
    out = subprocess.run(
        [os.environ["OPWIRE_PROGRAM"], "--host", box.address, "devices"],
        env={**box.env, "SSH_KEY": "/nowhere"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert out.returncode == 3 and "Permission denied" in out.stderr, out.stderr
    out = subprocess.run(
        [os.environ["OPWIRE_PROGRAM"], "--host", box.address, "devices"],
        env=box.env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert out.returncode == 0 and "auto-0" in out.stdout, out.stderr
    out = subprocess.run(
        [os.environ["OPWIRE_PROGRAM"], "--host", "ssh://-oProxyCommand=x", "devices"],
        env=box.env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert out.returncode == 2 and "expected ssh://" in out.stderr, out.stderr


def test_the_documents_transcript(box):
    """Types the console block of docs/cli.md and compares the output."""
    (box.folder / "double.opw").write_text(
        "program @double(%x: f32[?n]) -> (y: f32[?n]) {\n  %0 = add(%x, %x)\n  return %0\n}\n"
    )
    page = (pathlib.Path(__file__).parents[2] / "docs/cli.md").read_text()
    quoted = re.search(r"\n## Another host\n.*?```console\n(.*?)```", page, re.S)[1]
    said = ""
    for i, command in enumerate(re.findall(r"^\$ (.*)", quoted, re.M)):
        env = {**box.env, "SSH_KEY": str(box.folder / "stranger")} if i == 0 else box.env
        out = subprocess.run(
            command,
            shell=True,
            cwd=box.folder,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
        said += f"$ {command}\n{out.stdout}" + (
            f"[exit code {out.returncode}]\n" if out.returncode else ""
        )
    # Replaces the parts that differ between machines, as in the other quotes of that page.
    names = [
        (r"\S+@127\.0\.0\.1:", "ada@gpubox:"),
        (r"((?:ID|auto-0) +(?:DEVICE|cpu   )) .*", r"\1  ..."),
        (r"(y: f32\[4\] =) .*", r"\1 ..."),
        (r"in [0-9.]+ [num]?s\b", "in TIME"),
    ]
    for pattern, name in names:
        said = re.sub(pattern, name, said)
    assert said == quoted
