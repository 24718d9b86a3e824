"""The documentation's examples: snippets run as they are printed, docstrings' examples, types."""

import doctest
import importlib
import inspect
import os
import pathlib
import pkgutil
import re
import subprocess
import sys

import opwire as ow
import pytest

ROOT = pathlib.Path(__file__).parents[2]
MODULES = ["opwire"] + [
    f"opwire.{m.name}" for m in pkgutil.iter_modules(ow.__path__) if m.name != "_core"
]


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name, client):
    failed, _ = doctest.testmod(
        importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE
    )
    assert failed == 0


def test_every_public_name_is_documented():
    for name in dir(ow):
        value = getattr(ow, name)
        if name.startswith("_") or inspect.ismodule(value) or not callable(value):
            continue
        assert value.__doc__, name
    for module in (ow.linalg, ow.random):
        for name, value in vars(module).items():
            if (
                not name.startswith("_")
                and inspect.isfunction(value)
                and value.__module__ == module.__name__
            ):
                assert value.__doc__, name


@pytest.mark.parametrize("page", ["docs/python.md", "README.md"])
def test_snippets(page, tmp_path, monkeypatch, client):
    """Runs each ```python block of the page, in one namespace.

    A comment after `#>` is the output of the line before.
    """
    monkeypatch.chdir(tmp_path)
    text = (ROOT / page).read_text()
    space: dict = {}
    for block in re.findall(r"```python\n(.*?)```", text, re.S):
        printed: list[str] = []
        space["print"] = lambda *a: printed.extend(" ".join(map(str, a)).splitlines())
        exec(compile(block, page, "exec"), space)
        expected = re.findall(r"#> (.*)", block)
        assert printed == expected, block


def test_strict_users_of_the_package_pass_mypy(tmp_path):
    pytest.importorskip("mypy")
    (tmp_path / "user.py").write_text(
        "import opwire as ow\n\n\ndef f(x: ow.Array) -> ow.Array:\n    return ow.softmax(x @ ow.ones((3, 3)), axis=-1)\n\n\nprint(f(ow.ones((2, 3))).shape, ow.linalg.det(ow.eye(2)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path), "user.py"],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(ROOT / "frontend/python")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_all_names_what_is_public():
    assert {n for n in ow.__all__ if not n.startswith("_")} == {
        n
        for n in vars(ow)
        if not n.startswith("_")
        and not (inspect.ismodule(getattr(ow, n)) and n not in ("linalg", "random"))
    }


def test_stubs_name_what_the_module_has():
    import ast

    from opwire import _core

    tree = ast.parse((ROOT / "frontend/python/opwire/_core.pyi").read_text())
    named = {n.name for n in tree.body if isinstance(n, (ast.ClassDef, ast.FunctionDef))} | {
        n.target.id for n in tree.body if isinstance(n, ast.AnnAssign)
    }
    public = {n for n in named if not n.startswith("_")}
    assert public == {n for n in dir(_core) if not n.startswith("_")}
    for c in (n for n in tree.body if isinstance(n, ast.ClassDef)):
        theirs = {n.name for n in c.body if isinstance(n, ast.FunctionDef)} - {
            "__init__",
            "__buffer__",
        }
        assert theirs <= set(dir(getattr(_core, c.name))), c.name
        ours = {n for n in vars(getattr(_core, c.name)) if not n.startswith("_")}
        assert ours <= theirs, c.name
