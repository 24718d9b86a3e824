"""Clients, devices, and which of them arrays are made on."""

from __future__ import annotations

import atexit
import contextlib
import contextvars
import gc
import json
import os
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator, MutableMapping
from typing import TYPE_CHECKING, Any

from . import _core, _tables

if TYPE_CHECKING:
    from ._array import Array

_current: Client | None = None
_chosen: contextvars.ContextVar[tuple[Device, ...]] = contextvars.ContextVar(
    "opwire_device", default=()
)  # the innermost last
_devices: dict[_core.Session, Device] = {}
_PATIENCE = 5.0  # seconds
_opening = threading.RLock()  # threads that are the first to need a client or a session share it


def _check_process() -> None:
    if _core.is_forked():
        raise RuntimeError(
            'this process was forked from one that imported opwire, whose connections it cannot share: start it by the method "spawn"'
        )


class Device:
    """An executor's accelerator, as this client uses it.

    Devices of one client are equal where their executors are.
    """

    def __init__(self, client: Client, facts: dict[str, Any]):
        self._client = client
        self._session: _core.Session | None = None
        self.facts = facts

    @property
    def client(self) -> Client:
        """Whose it is."""
        return self._client

    @property
    def name(self) -> str:
        """The device's name there: "cpu", "cuda:0"."""
        return str(self.facts["device"])

    @property
    def executor(self) -> str:
        """The executor's id."""
        return str(self.facts["id"])

    @property
    def host(self) -> str:
        """ "here", or the address of the host."""
        if self.facts["host"]:
            return str(self.facts["host"])
        endpoint = str(self.facts["endpoint"])
        return (
            "here"
            if endpoint.startswith("ipc://")
            else endpoint.removeprefix("tcp://").rsplit(":", 1)[0]
        )

    @property
    def session(self) -> _core.Session:
        """The client's session there, opened when first asked for."""
        _check_process()
        with _opening:
            if self._session is None:
                c = self._client
                self._session = c._core.open(
                    self.executor, c.session_name, c.memory_bytes, c.ttl_s, str(self)
                )
            _devices.setdefault(self._session, self)
            return self._session

    def op(self, name: str) -> Callable[..., Any]:
        """An op of the executor, by its name: one of your own, "user.NAME" (docs/user-ops.md), or a
        built-in one (docs/ops.md). ValueError if the executor lacks it.

        Call it with its operands in order and its attributes by name. Operands are arrays on this
        device, numbers, None for an optional operand, and lists if the op takes lists. The call
        returns an array, or a tuple if the op does not have exactly one result. jit traces it as
        any function of this module.

        >>> import opwire as ow
        >>> top = ow.connect().device.op("topk")
        >>> [t.tolist() for t in top(ow.asarray([1.0, 3.0, 2.0]), k=2)]
        [[3.0, 2.0], [1, 2]]
        """
        made = _core.Op(self.session, _tables.checked_name(name, "op"))

        def call(*operands: Any, **attrs: Any) -> Any:
            results = made.many(*operands, **attrs)
            return results[0] if len(results) == 1 else results

        call.__name__ = call.__qualname__ = name
        return call

    def report(self) -> str:
        """What the executor says of itself, as JSON."""
        return self.session.info("report")

    def synchronize(self) -> None:
        """Sends the queued ops. They run in order; fetching a value waits for it."""
        self.session.flush()

    def __repr__(self) -> str:
        return f"{self.host}/{self.name}"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Device)
            and other._client is self._client
            and other.executor == self.executor
        )

    def __hash__(self) -> int:
        return hash((id(self._client), self.executor))

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("a device is not pickled: connect in the process that needs it")

    def __copy__(self) -> Device:
        return self

    def __deepcopy__(self, memo: Any) -> Device:
        return self

    def __enter__(self) -> Device:  # noqa: PYI034  (Self is of Python 3.11)
        _chosen.set((*_chosen.get(), self))
        return self

    def __exit__(self, *_: object) -> None:
        _chosen.set(_chosen.get()[:-1])


class Store(MutableMapping[str, "Array"]):
    """The named tensors of a client's session. Another client that attaches to the session has
    them, too.

    A stored array outlives the original and this process. The store holds copies, and reading
    returns copies. They share their memory on the device as long as neither is changed in place.
    """

    def __init__(self, client: Client):
        self._client = client

    def _all(self) -> list[dict[str, Any]]:
        return [t for t in self._client.device.session.tensors() if t["name"]]

    def __getitem__(self, name: str) -> Array:
        if name not in self:
            raise KeyError(name)
        session = self._client.device.session
        found: Array = session.copy(session.find(name))
        found.stored = name
        return found

    def __setitem__(self, name: str, array: Array) -> None:
        from ._array import Array as Stored

        if not isinstance(name, str) or not name:
            raise ValueError(f"the store: expected a name, got {name!r}")
        _tables.checked_name(name, "the store: name")
        if not isinstance(array, Stored):
            raise TypeError(
                f"the store: {name}: expected an array of a device, got {type(array).__name__}: see asarray"
            )
        session = self._client.device.session
        if array.session is not session:
            raise ValueError(
                f"the store is on {self._client.device} of this client, the array is not: move it by to_device"
            )
        # Raises for an array that cannot be stored, before the old one is freed.
        stored = session.copy(array)
        if name in self:
            del self[name]
        session.rename(stored, name)
        array.stored = name

    def __delitem__(self, name: str) -> None:
        if name not in self:
            raise KeyError(name)
        session = self._client.device.session
        session.free(session.find(name))

    def __iter__(self) -> Iterator[str]:
        return iter([t["name"] for t in self._all()])

    def __len__(self) -> int:
        return len(self._all())

    def __contains__(self, name: object) -> bool:
        return any(t["name"] == name for t in self._all())


class Client:
    """Executors that a registry knows, and this process's sessions on them."""

    def __init__(
        self,
        registries: list[str],
        session_name: str,
        memory_bytes: int,
        ttl_s: int,
        embedded: bool,
    ):
        _check_process()
        self._core = _core.Client.connect(registries, embedded)
        self.session_name = session_name
        self.memory_bytes = memory_bytes
        self.ttl_s = ttl_s
        self._known: dict[str, Device] = {}
        self.store = Store(self)

    @property
    def devices(self) -> list[Device]:
        """The available executors.

        If there is none, and no registry was named, one is started for this user first.
        """
        _check_process()
        self._core.start_if_none("")
        seen = self._there()
        # Accelerators first, then by how much waits there.
        seen.sort(key=lambda d: (d.name.startswith("cpu"), d.facts["queued"], d.executor))
        return seen

    def _there(self) -> list[Device]:
        seen = []
        for facts in self._core.executors():
            known = self._known.setdefault(facts["id"], Device(self, facts))
            known.facts = facts
            seen.append(known)
        return seen

    @property
    def device(self) -> Device:
        """Where arrays go that name no device: the first of `devices` when it was first asked for."""
        with _opening:
            if not hasattr(self, "_device"):
                self._device = self._first()
            return self._device

    def _first(self) -> Device:
        """The first of `devices` that takes a session: an executor that has just died is among them
        for a moment.
        """
        until = time.monotonic() + _PATIENCE
        while True:
            there = self.devices
            if not there:
                raise ConnectionError("no executor is registered: start one by `opwire up`")
            for d in there:
                try:
                    d.session  # noqa: B018
                except ConnectionError:
                    if d is there[-1] and time.monotonic() > until:
                        raise
                    continue
                except Exception:  # which is told to who needs the session
                    pass
                return d
            time.sleep(0.05)

    def show(self, what: str = "devices") -> _tables.Table:
        """Facts as a table.

        "devices": the executors; "sessions": those on the device; "ops": the ops of the device;
        "tensors": those of this client's session; "grants": the arrays that this user's sessions
        share.
        """
        if what == "devices":
            return _tables.of_devices([d.facts for d in self.devices])
        session = self.device.session
        if what == "sessions":
            return _tables.of_sessions(json.loads(session.info("sessions")))
        if what == "ops":
            return _tables.of_ops(json.loads(session.info("ops")))
        if what == "tensors":
            return _tables.of_tensors(session.tensors())
        if what == "grants":
            return _tables.of_grants(json.loads(session.info("grants")))
        raise ValueError(
            f'show: expected "devices", "sessions", "ops", "tensors" or "grants", got {what!r}'
        )

    def take(self, what: str, *, session: str | None = None, device: Device | None = None) -> Array:
        """An array that another session granted: by the text that Array.grant returned, or by its
        name in the session `session` of this user.

        It shares the memory of the original, and counts in full towards the limit of this session.
        Writing to it does not change the original. device: where the array is; None: `device`.

        LookupError if there is no such grant, PermissionError if it was granted to others.
        """
        _tables.checked_name(what, "take")
        if session is not None:
            _tables.checked_name(session, "take: session")
        taken: Array = (device or self.device).session.take(what, session)
        return taken

    def revoke(self, capability: str, *, device: Device | None = None) -> None:
        """Ends a grant of this client's session.

        Sessions that took the array keep it. LookupError if there is no such grant.
        """
        (device or self.device).session.revoke(_tables.checked_name(capability, "revoke"))

    def close(self, *, free: bool = False) -> None:
        """Ends this client's sessions; an unnamed session, or any with `free`, loses its tensors."""
        global _current
        if _current is self:
            _current = None
        if free and self.session_name:  # also where this client has not looked at it
            try:
                there = self._there()
            except ConnectionError:  # the registry, and with it what it had started, ended before
                there = []
            for d in there:
                d.session  # noqa: B018
        for d in self._known.values():
            session, d._session = (
                d._session,
                None,
            )  # first, so that what cannot be closed is not tried again
            if session is not None:
                _devices.pop(session, None)
                try:
                    session.close(free)
                except ConnectionError:  # its executor ended before
                    if free:
                        raise

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("a client is not pickled: connect in the process that needs it")

    def __copy__(self) -> Client:
        return self

    def __deepcopy__(self, memo: Any) -> Client:
        return self

    def __repr__(self) -> str:
        return f"<opwire.Client: {', '.join(map(str, self.devices)) or 'no devices'}>"


def _find_program() -> None:
    """Executors of the user's own are started by the program that was installed with this package."""
    beside = os.path.join(sysconfig.get_path("scripts"), "opwire")
    if os.path.isfile(beside):
        os.environ.setdefault("OPWIRE_PROGRAM", beside)


def connect(
    registry: str | list[str] | None = None,
    *,
    session: str = "",
    memory_bytes: int = 0,
    ttl_s: int = 0,
    embedded: bool = True,
) -> Client:
    """A client of a registry, which becomes the default for new arrays.

    registry: addresses such as "ipc:///run/user/1000/opwire/registry", "tcp://host:4780" or
    "ssh://gpubox", for the executors of a host that `ssh gpubox` reaches without a password. None:
    OPWIRE_REGISTRY, else the user's own. The user's own, there or here, is started if it does not
    run, unless `embedded` is False.
    session: a name, under which tensors outlive this process and are found again; empty: they end
    with it. Only the same user can attach.
    memory_bytes: the most that a session may hold; 0: the executor's default.
    ttl_s: how long a named session stays without a client; 0: the executor's default.

    It connects when a device is first asked for: ConnectionError there, if nothing answers.
    """
    global _current
    _find_program()
    registries = [registry] if isinstance(registry, str) else list(registry or [])
    for name, value in (("memory_bytes", memory_bytes), ("ttl_s", ttl_s)):
        if value < 0:
            raise ValueError(f"connect: {name}: expected 0 or more, got {value}")
    _tables.checked_name(session, "connect: session")
    for r in registries:
        _tables.checked_name(r, "connect: registry")
    made = Client(registries, session, memory_bytes, ttl_s, embedded)
    with _opening:
        _current = made
        _forget_unused()
    return made


def _forget_unused() -> None:
    """Ends the sessions of clients without references, such as those that a notebook cell leaves
    when it runs again.

    Sessions with arrays stay.
    """
    from ._large import forget_programs

    forget_programs()  # which hold sessions
    unused = [s for s, d in _devices.items() if d.client is not _current and s.users == 0]
    for session in unused:
        del _devices[session]
    if unused:
        del session, unused
        gc.collect()  # clients and devices hold each other


def current_client() -> Client:
    with _opening:
        return _current if _current is not None else connect()


def devices() -> list[Device]:
    """The devices of the current client."""
    return current_client().devices


def device(name: str | Device | None = None, *, op: str | None = None) -> Device:
    """A device of the current client: by its name ("cuda:0"), executor or printed form; None: where
    arrays are made.

    op: the first device whose executor has this op, of that name if one is given. ValueError if no
    device has it.
    """
    if op is not None:
        return _device_with(op, name)
    if isinstance(name, Device):
        return name
    if name is None:
        chosen = _chosen.get()
        return chosen[-1] if chosen else current_client().device
    there = devices()
    for d in there:
        if name in (str(d), d.name, d.executor):
            return d
    raise ValueError(f"no device {name!r}: there are {', '.join(map(str, there)) or 'none'}")


def _device_with(op: str, name: str | Device | None) -> Device:
    _tables.checked_name(op, "device: op")
    there = [d for d in devices() if name is None or name in (d, str(d), d.name, d.executor)]
    chosen = device() if name is None else None
    # What arrays are made on comes first.
    for d in sorted(there, key=lambda d: d != chosen):
        try:
            d.op(op)
        except ValueError:
            continue
        return d
    raise ValueError(f"no device has op {op!r}: there are {', '.join(map(str, there)) or 'none'}")


def device_of(session: _core.Session) -> Device:
    known = _devices.get(session)
    if known is None:
        raise RuntimeError(
            f"the client that opened this session on {session.place} was closed, and its arrays with it"
        )
    return known


def _default_session() -> _core.Session:
    return device().session


def _end_sessions() -> None:
    """Ends the sessions of a process that ends, so that others have their memory at once."""
    if _core.is_forked():
        return
    for session in list(_devices):
        with contextlib.suppress(Exception):  # there is no caller to tell
            session.leave()


_core.set_default_session(_default_session)
atexit.register(_end_sessions)  # after all that is registered later
atexit.register(
    _core.end_others
)  # daemon threads, which the end of the interpreter would end in the middle of a call
_core.set_package_folder(os.path.dirname(os.path.abspath(__file__)) + os.sep)
if sys.platform != "linux":
    raise ImportError("opwire runs on Linux")
