"""Processes: named sessions that outlive a process, executors that die, forks, signals, threads."""

import concurrent.futures
import json
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import opwire as ow
import pytest


def run(code, timeout=60):
    here = os.path.dirname(os.path.abspath(__file__))
    path = os.pathsep.join(p for p in (here, os.environ.get("PYTHONPATH")) if p)
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )


def test_a_session_outlives_its_process(client):
    name = f"lab{os.getpid()}"
    made = run(
        f"import opwire as ow\nc = ow.connect(session={name!r})\nc.store['w'] = ow.arange(6) * 2\nimport os; os._exit(1)"
    )
    assert made.returncode == 1, made.stderr
    again = ow.connect(session=name)
    try:
        assert list(again.store) == ["w"] and "w" in again.store and "v" not in again.store
        assert again.store["w"].tolist() == [0, 2, 4, 6, 8, 10]
        with pytest.raises(KeyError):
            again.store["v"]
        again.store["w"] = ow.ones(2)
        assert again.store["w"].tolist() == [1, 1]
        del again.store["w"]
        assert len(again.store) == 0
    finally:
        again.close(free=True)
        ow.connect()


@pytest.mark.parametrize(
    "end",
    [
        "pass",
        "raise ValueError",
        "raise KeyboardInterrupt",
        "import sys; sys.exit(3)",
        "import os; os._exit(0)",
        "import os; os.kill(os.getpid(), 9)",
        # A child keeps the connection's socket open.
        "import os, time\nif os.fork() == 0: os.close(1); os.close(2); time.sleep(8); os._exit(0)\n"
        "os.kill(os.getpid(), 9)",
    ],
)
def test_a_script_that_has_ended_holds_no_memory(client, end):
    def sessions():
        return len(json.loads(client.device.session.info("sessions")))

    there = sessions()
    run(f"import opwire as ow\nx = ow.ones(1000) + 1\nassert x.tolist()[0] == 2\n{end}")
    if "os." not in end:
        assert sessions() == there
    until = time.monotonic() + 5
    while sessions() != there and time.monotonic() < until:
        time.sleep(0.01)
    assert sessions() == there


def test_names_neither_control_nor_reorder_a_terminal():
    client = ow.connect()
    name = "größe\u202e\x9b1"
    client.store[name] = ow.ones(1)
    try:
        shown = repr(client.show("tensors"))
        assert "größe\\u202e\\x9b1" in shown and name not in shown
        with pytest.raises(RuntimeError, match=r"\\u202e\\u009b1"):
            client.device.session.rename(ow.ones(2), name)
        with pytest.raises(FileNotFoundError) as missing:
            ow.load(name + ".gguf")
        with pytest.raises(ValueError, match="unknown op") as unknown:
            client.device.op("user." + name)
        assert str(missing.value).isprintable() and str(unknown.value).isprintable()
    finally:
        del client.store[name]


def test_more_arrays_than_a_session_may_have(client):
    xs = [ow.zeros(3) for _ in range(70000)]
    with pytest.raises(MemoryError, match="at most 65536 tensors"):
        xs[-1].tolist()
    del xs
    assert (ow.ones(3) + 1).tolist() == [2, 2, 2]
    for _ in ow.zeros(70000):
        pass
    assert (ow.ones(3) + 1).tolist() == [2, 2, 2]


def test_a_session_is_freed_by_who_has_not_looked_at_it():
    name = f"freed{os.getpid()}"
    made = run(f"import opwire as ow\nc = ow.connect(session={name!r})\nc.store['w'] = ow.ones(3)")
    assert made.returncode == 0, made.stderr
    ow.connect(session=name).close(free=True)
    again = ow.connect(session=name)
    assert list(again.store) == []
    again.close(free=True)
    ow.connect()


def test_what_is_stored_stays(client):
    lab = ow.connect(session="kept")
    w = ow.ones(3)
    lab.store["w"] = w
    lab.store["w"] = w
    lab.store["w"] = lab.store["w"]
    lab.store["v"] = w
    assert (
        sorted(lab.store) == ["v", "w"] and [lab.store[n].tolist() for n in "vw"] == [[1, 1, 1]] * 2
    )
    ow.jit(lambda x: x + 1, donate_argnames="x")(given := ow.ones(2))
    with ow.connect().device:
        other = ow.ones(2)
    for bad in (given, other):
        with pytest.raises(ValueError):
            lab.store["w"] = bad
    failed = ow.take(w, ow.asarray([7], device=lab.device), axis=0)
    with pytest.raises(IndexError):
        lab.store["w"] = failed
    assert lab.store["w"].tolist() == [1, 1, 1]
    assert lab.store.pop("w").tolist() == [1, 1, 1] and "w" not in lab.store
    name, popped = lab.store.popitem()
    assert (name, popped.tolist(), len(lab.store)) == ("v", [1, 1, 1], 0)
    assert lab.store.pop("w", None) is None
    for take in (lab.store.popitem, lambda: lab.store.pop("w")):
        with pytest.raises(KeyError):
            take()
    lab.close(free=True)
    ow.connect()


def test_what_is_stored_and_arrays_are_values_apart(client):
    lab = ow.connect(session="apart")
    with lab.device:
        w = ow.ones(3)
        captures = ow.jit(lambda x: x + w)
        assert captures(ow.ones(3)).tolist() == [2, 2, 2]
        lab.store["w"] = w
        queued, shaped = w + 1, w.reshape((3, 1))
        lab.store["w"] = ow.zeros(3)
        read = lab.store["w"]
        del lab.store["w"]
        assert [a.tolist() for a in (w, queued, read)] == [
            [1, 1, 1],
            [2, 2, 2],
            [0, 0, 0],
        ] and shaped.shape == (3, 1)
        assert captures(ow.ones(3)).tolist() == [2, 2, 2]
        lab.store["w"] = w
        w[0] = 9
        doubled = ow.jit(lambda x: x * 2, donate_argnames="x")(w)
        assert (doubled.tolist(), lab.store["w"].tolist()) == ([18, 2, 2], [1, 1, 1])
        with pytest.raises(KeyError):
            del lab.store["v"]
    lab.close(free=True)
    ow.connect()


def test_clients_that_nobody_has_end(client):
    kept = ow.connect()
    x = ow.ones(3, device=kept.device)
    held = ow.connect()
    assert ow.ones(2).tolist() == [1, 1]
    for _ in range(40):  # more sessions than one user may have
        assert ow.ones(2, device=ow.connect().device).tolist() == [1, 1]
    assert len(json.loads(ow.connect().device.session.info("sessions"))) < 8
    device = x.device
    del kept
    ow.connect()
    assert (x + 1).tolist() == [2, 2, 2] and x.device is device
    with held.device:
        assert ow.ones(2).tolist() == [1, 1] and ow.ones(2).device is held.device


def test_a_closed_client(client):
    closed = ow.connect()
    x, f = ow.ones(3), ow.jit(lambda by: ow.ones(2) * by)
    assert f(2.0).tolist() == [2, 2]
    closed.close()
    for use in (
        lambda: x.device,
        lambda: x.tolist(),
        lambda: x + np.ones(3),
        lambda: x + 1,
        lambda: ow.zeros_like(x),
    ):
        with pytest.raises(RuntimeError, match="closed"):
            use()
    ow.connect()
    assert f(2.0).tolist() == [2, 2]


def test_results_of_a_failed_run_are_listed(client):
    with client.device:
        failed = ow.take(ow.ones(3), ow.asarray([7]), axis=0)
    with pytest.raises(IndexError):
        failed.tolist()
    assert "no" in [row["usable"] for row in client.show("tensors")] and "no" in repr(
        client.show("tensors")
    )
    assert list(client.store) == []


def test_a_client_whose_session_another_ended():
    one, other = ow.connect(session="ended"), ow.connect(session="ended")
    assert one.device.session and other.device.session
    one.close(free=True)
    with pytest.raises(RuntimeError):
        other.close()
    other.close()
    assert ow.ones(2).tolist() == [1, 1]
    ow.connect()


def test_a_dropped_client_ends_its_session_after_large_reductions(client):
    def sessions():
        return len(json.loads(client.device.session.info("sessions")))

    there = sessions()
    for _ in range(3):
        ow.connect()
        assert float(ow.mean(ow.ones((1 << 23,), dtype=ow.uint8))) == 1
    ow.connect()
    assert sessions() <= there + 1  # the last one's


def test_threads_share_the_session_that_they_open(client):
    for _ in range(10):
        fresh = ow.connect()
        start = threading.Barrier(8)

        def make():
            start.wait()
            return ow.ones(3)

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            made = [m.result() for m in [pool.submit(make) for _ in range(8)]]
        assert len({m.session for m in made}) == 1
        fresh.close()
    ow.connect()


def test_threads_choose_devices_by_themselves(client):
    def choose():
        for _ in range(100):
            with client.device:
                time.sleep(1e-4)
                with client.device:
                    pass

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(choose) for _ in range(4)]:
            done.result()


def test_sessions_share_arrays(client):
    name = f"model{os.getpid()}"
    model = ow.connect(session=name)
    lab = ow.connect(session=f"lab{os.getpid()}")
    other = ow.connect()
    try:
        with model.device:
            w = ow.arange(100_000) * 2
            model.store["w"] = w
            token = w.grant()
            mine = w.grant(lab.session_name, name="mine")
        shared = {g["capability"]: g for g in model.show("grants")}
        assert (shared[token]["name"], shared[token]["tensor"], shared[token]["to session"]) == (
            "w",
            "i64[100000]",
            "all",
        )
        assert (shared[mine]["session"], shared[mine]["name"], shared[mine]["to session"]) == (
            name,
            "mine",
            lab.session_name,
        )
        made = run(
            f"import opwire as ow\nc = ow.connect()\nw = c.take('w', session={name!r})\nprint(int(w[3]), w.shape)\nw[3] = 0\nprint(int(w[3]))"
        )
        assert made.stdout.split("\n")[:2] == ["6 (100000,)", "0"], made.stderr
        a, b = other.take(token), lab.take("mine", session=name)
        with pytest.raises(PermissionError, match="granted to others"):
            other.take(mine)
        with pytest.raises(LookupError, match="grants no tensor 'mine'"):
            other.take("mine", session=name)
        with pytest.raises(PermissionError, match="another session's"):
            a.grant()
        with pytest.raises(ValueError, match="32 hexadecimal digits"):
            other.take("w")
        model.revoke(token)
        assert (
            token not in repr(model.show("grants")) and mine in model.show("grants")._repr_html_()
        )
        with pytest.raises(LookupError, match="revoked"):
            other.take(token)
        model.close(free=True)
        assert np.array_equal(np.asarray(a), np.arange(100_000) * 2) and b[5].item() == 10
        f = ow.jit(lambda x: x + 1, donate_argnames="x")
        assert f(a)[:2].tolist() == [1, 3] and b[:2].tolist() == [0, 2], (
            "a donated array that is shared is left as it is"
        )
    finally:
        lab.close(free=True)
        ow.connect()


def test_tables():
    client = ow.connect()
    x = ow.ones((2, 3))
    np.asarray(x)
    for what, needs in [
        ("devices", "DEVICE"),
        ("sessions", "PRINCIPAL"),
        ("ops", "softmax"),
        ("tensors", "float32[2, 3]"),
    ]:
        table = client.show(what)
        assert needs in repr(table) and "<table>" in table._repr_html_() and len(table) >= 1
    with pytest.raises(ValueError, match="expected"):
        client.show("weather")


def test_an_executor_that_dies_is_told_and_another_found():
    out = run(
        """
import os, signal, time, tempfile
from processes import naming
os.environ["OPWIRE_RUNTIME_DIR"] = d = tempfile.mkdtemp()
import opwire as ow
c = ow.connect()
x = ow.ones(3)
assert float(x.sum()) == 3
w = ow.ones(4)
f = ow.jit(lambda: (w * 2).sum())
assert float(f()) == 8
pids = naming("opwire-executor", d)
assert pids
for p in pids: os.kill(p, signal.SIGKILL)
try:
    float((x + 1).sum()); print("no error")
except ConnectionError as e:
    print("ConnectionError", e)
for _ in range(200):
    try:
        print("again", float(ow.ones(4).sum())); break
    except ConnectionError:
        time.sleep(0.1)
try:
    float(x.sum())
except ConnectionError as e:
    print("lost", e)
w = ow.ones(5)
for _ in range(2):
    try:
        print("anew", float(f()))
    except ConnectionError:
        print("captured what was lost")
for p in naming(d): os.kill(p, signal.SIGTERM)
"""
    )
    assert out.returncode == 0, out.stderr
    assert "ConnectionError" in out.stdout and "again 4.0" in out.stdout and "lost" in out.stdout, (
        out.stdout
    )
    assert out.stdout.splitlines()[-1] == "anew 10.0", out.stdout


def test_a_forked_process_is_refused(client):
    x, f = ow.ones(3), ow.jit(lambda v: v * 2)
    large = np.asarray(ow.ones(100_000))
    f(x)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        for use in (
            lambda: ow.ones(3),
            lambda: x + 1,
            lambda: f(x),
            lambda: float(x[0]),
            lambda: client.devices,
        ):
            try:
                use()
                os.write(write, b"no error\n")
            except RuntimeError as e:
                os.write(write, str(e).encode() + b"\n")
        del x, f, large
        sys.modules.clear()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    said = os.read(read, 10_000).decode().splitlines()
    assert len(said) == 5 and all("spawn" in line for line in said), said
    assert f(x).tolist() == [2, 2, 2] and float(large[0]) == 1


def test_what_on_emit_calls_may_be_first_called_elsewhere(client):
    x = ow.ones((64, 64))
    twice = ow.jit(lambda v: v.sum() * 2)
    begun, heard = threading.Event(), []

    @ow.jit
    def halve(w):
        def step(i, w):
            ow.emit("sum", w.sum())
            return w * 0.5

        return ow.for_loop(3, step, w)

    def hear(name, value):
        begun.set()
        time.sleep(0.1)  # the other thread waits for the session at this point
        heard.append(float(twice(ow.asarray(value))))

    def call():
        begun.wait()
        heard.append(float(twice(x)))

    other = threading.Thread(target=call, daemon=True)
    other.start()
    halve.run(x, on_emit=hear)
    other.join(30)
    assert not other.is_alive() and sorted(heard) == [2048.0, 4096.0, 8192.0, 8192.0]


def test_limits_of_sessions_are_not_negative():
    for name in ("memory_bytes", "ttl_s"):
        with pytest.raises(ValueError, match=f"connect: {name}: expected 0 or more, got -5"):
            ow.connect(**{name: -5})


def test_ctrl_c_ends_a_long_run(client):
    f = ow.jit(
        lambda x: ow.while_loop(
            lambda c: c[0] >= 0.0, lambda c: (c[0], ow.tanh(c[1] @ c[1])), (ow.asarray(1.0), x)
        )[1]
    )
    y = f(ow.ones((200, 200)))
    threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    begun = time.time()
    with pytest.raises(KeyboardInterrupt):
        np.asarray(y)
    assert time.time() - begun < 5
    assert float(ow.ones(4).sum()) == 4


def test_ctrl_c_ends_the_wait_for_another_thread():
    out = run(
        """
import os, signal, tempfile, threading, time
from processes import naming
os.environ["OPWIRE_RUNTIME_DIR"] = d = tempfile.mkdtemp()
import opwire as ow
x = ow.ones((100, 100))
y = ow.jit(lambda x: ow.while_loop(lambda c: c[0] >= 0.0, lambda c: (c[0], ow.tanh(c[1] @ c[1])), (ow.asarray(1.0), x))[1])(x)
threading.Thread(target=y.tolist, daemon=True).start()
time.sleep(0.5)  # it has the session
threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    x.tolist()
except KeyboardInterrupt:
    print("interrupted", flush=True)
for p in naming(d):
    if p != os.getpid(): os.kill(p, signal.SIGKILL)
os._exit(0)
""",
        30,
    )
    assert out.stdout == "interrupted\n", out.stderr


ENDLESS = """
import asyncio, os, signal, tempfile, threading, time
from processes import naming
os.environ["OPWIRE_RUNTIME_DIR"] = d = tempfile.mkdtemp()
import numpy as np, opwire as ow
c = ow.connect()
x = ow.ones(4)
y = ow.jit(lambda n: ow.while_loop(lambda s: s >= 0, lambda s: s * 1, n))(ow.asarray(0))
"""


def test_whoever_awaits_a_value_may_stop():
    out = run(
        ENDLESS
        + """
begun = time.time()
try:
    asyncio.run(asyncio.wait_for(y.fetch(), 0.3))
except TimeoutError:
    print("timeout")
threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
async def main(): await y.fetch()
try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted")
c.close()
print("closed", time.time() - begun < 10)
for p in naming(d): os.kill(p, signal.SIGTERM)
""",
        40,
    )
    assert out.stdout == "timeout\ninterrupted\nclosed True\n", out.stderr


@pytest.mark.parametrize("waits", ["y", "x + 1"])
def test_a_process_ends_while_daemon_threads_wait(waits):
    out = run(
        ENDLESS
        + f"""
if {waits != "y"}:  # of a session in which nothing runs
    c.close(); ow.connect(); x = ow.ones(4)
def work():
    while True: np.asarray({waits})
for _ in range(3): threading.Thread(target=work, daemon=True).start()
time.sleep(0.5)
for p in naming(d, "opwire up"): os.kill(p, signal.SIGTERM)
print("end", flush=True)
""",
        40,
    )
    assert (out.returncode, out.stdout) == (0, "end\n"), out.stderr


def test_another_client_is_there_as_soon_as_an_executor_has_died():
    out = run(
        """
import os, signal, tempfile
from processes import naming
os.environ["OPWIRE_RUNTIME_DIR"] = d = tempfile.mkdtemp()
import opwire as ow
c = ow.connect()
x = ow.ones(3); float(x.sum())
for p in naming("opwire-executor", d): os.kill(p, signal.SIGKILL)
try:
    float((x + 1).sum())
except ConnectionError:
    new = ow.connect()
    print(ow.ones(3).tolist())
c.close()
for p in naming(d): os.kill(p, signal.SIGTERM)
"""
    )
    assert (out.returncode, out.stdout) == (0, "[1.0, 1.0, 1.0]\n"), out.stderr


def test_what_the_store_takes(client):
    with pytest.raises(ValueError, match="expected a name, got ''"):
        client.store[""] = ow.ones(1)
    with pytest.raises(TypeError, match="n: expected an array of a device, got ndarray"):
        client.store["n"] = np.ones(1)


def test_other_threads_run_while_one_waits(client):
    x = ow.ones((300, 300)) / 300
    iterations = 100
    seconds = 0.0
    while seconds < 0.2:  # for which the other thread has time on fast devices, too
        iterations *= 2
        f = ow.jit(lambda x: ow.for_loop(iterations, lambda i, c: ow.tanh(c @ c), x))
        np.asarray(f(x))
        start = time.perf_counter()
        np.asarray(f(x))
        seconds = time.perf_counter() - start
    counted = [0]
    stop = threading.Event()

    def count():
        while not stop.is_set():
            counted[0] += 1
            time.sleep(0.001)

    t = threading.Thread(target=count)
    t.start()
    np.asarray(f(x))
    stop.set()
    t.join()
    assert counted[0] > 20

    # Several threads share a session.
    results = []

    def work(n):
        y = ow.zeros(8)
        for _ in range(200):
            y = y + n
        results.append((n, float(y[0])))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(results) == [(n, 200.0 * n) for n in range(4)]


def test_other_threads_run_while_ops_cannot_be_sent():
    out = run(
        """
import os, signal, subprocess, sys, tempfile, threading, time
from processes import naming
os.environ["OPWIRE_RUNTIME_DIR"] = d = tempfile.mkdtemp()
import opwire as ow
x = ow.ones((64, 64))
(x + 1).tolist()
def work():
    for _ in range(200):
        y = [x + k for k in range(300)]
pids = naming("opwire-executor", d)
subprocess.Popen([sys.executable, "-c", f"import os, time; time.sleep(3); [os.kill(p, {signal.SIGCONT}) for p in {pids}]"])
for p in pids: os.kill(p, signal.SIGSTOP)
t = threading.Thread(target=work)
t.start()
begun = last = time.time()
longest = 0
while last - begun < 2:
    time.sleep(0.01)
    longest, last = max(longest, time.time() - last), time.time()
print("longest", longest, "waits", t.is_alive())
t.join()
assert (x + 1).tolist()[0][0] == 2
for p in naming(d): os.kill(p, signal.SIGTERM)
"""
    )
    assert out.returncode == 0, out.stderr
    _, longest, _, waits = out.stdout.split()
    assert float(longest) < 1 and waits == "True", out.stdout


def test_errors_name_the_users_line(client):
    x = ow.asarray([1.0, 2.0, 3.0])
    bad = ow.take(x, ow.asarray([7]), axis=0)  # the line of the error
    line = test_errors_name_the_users_line.__code__.co_firstlineno + 2
    good = x + 1
    assert good.tolist() == [2, 3, 4], "what does not use it goes on"
    with pytest.raises(IndexError, match=rf"index_select.*test_sessions.py:{line}"):
        np.asarray(bad)
    with pytest.raises(ValueError, match="broadcast"):
        x + ow.ones(2)
    with pytest.raises(TypeError, match="sqrt"):
        ow.sqrt(ow.arange(3))


def test_other_devices(client):
    out = run(
        """
import os, subprocess, tempfile, time
os.environ["OPWIRE_RUNTIME_DIR"] = d = tempfile.mkdtemp()
import opwire as ow
program = os.environ["OPWIRE_PROGRAM"]
up = subprocess.Popen([program, "up", "--device", "cpu", "--device", "emu:0"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
try:
    c = ow.connect(embedded=False)
    for _ in range(300):
        try:
            if len(c.devices) == 2: break
        except ConnectionError: pass
        time.sleep(0.05)
    by = {x.name: x for x in c.devices}
    a = ow.ones(3, device=by["cpu"])
    b = a.to_device(by["emu:0"])
    assert b.device == by["emu:0"] and (b + 1).tolist() == [2, 2, 2]
    with by["emu:0"]:
        assert ow.zeros(2).device == by["emu:0"]
    f = ow.jit(lambda x: x * 3)
    assert f(b).device == by["emu:0"] and f(a).device == by["cpu"] and f(b).tolist() == [3, 3, 3]
    try: a + b
    except ValueError as e: print(e)
finally:
    up.terminate(); up.wait()
"""
    )
    assert out.returncode == 0, out.stderr
    assert "arrays of two devices" in out.stdout
