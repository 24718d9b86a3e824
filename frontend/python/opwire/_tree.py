"""Nested tuples, lists, dicts and None around arrays: taken apart and put together."""

from __future__ import annotations

from typing import Any


def flatten(tree: Any) -> tuple[list[Any], Any]:
    """The leaves in order, and what puts others in their places; hashable, and equal for trees of
    one form.
    """
    leaves: list[Any] = []
    return leaves, _flatten(tree, leaves)


def _flatten(tree: Any, leaves: list[Any]) -> Any:
    kind = type(tree)
    if kind is tuple or kind is list:
        return (kind, tuple([_flatten(e, leaves) for e in tree]))
    if isinstance(tree, dict):
        names = tuple(sorted(tree))
        return (dict, names, tuple([_flatten(tree[n], leaves) for n in names]))
    if tree is None:
        return None
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return (kind, "fields", tuple([_flatten(e, leaves) for e in tree]))
    leaves.append(tree)
    return "leaf"


def unflatten(form: Any, leaves: list[Any]) -> Any:
    """A tree of this form with these leaves."""
    return _unflatten(form, iter(leaves))


def _unflatten(form: Any, leaves: Any) -> Any:
    if form == "leaf":
        return next(leaves)
    if form is None:
        return None
    kind = form[0]
    if kind is dict:
        return {n: _unflatten(f, leaves) for n, f in zip(form[1], form[2])}
    if form[1] == "fields":
        return kind(*[_unflatten(f, leaves) for f in form[2]])
    return kind([_unflatten(f, leaves) for f in form[1]])


def names(form: Any, prefix: str = "") -> list[str]:
    """A name for each leaf: "x", "x_0", "x_weight"."""
    if form == "leaf":
        return [prefix or "x"]
    if form is None:
        return []
    if form[0] is dict:
        parts = list(zip(form[1], form[2]))
    else:
        parts = list(enumerate(form[2] if form[1] == "fields" else form[1]))
    out: list[str] = []
    for key, f in parts:
        text = "".join(c if c.isalnum() or c == "_" else "_" for c in str(key))
        out += names(f, f"{prefix}_{text}" if prefix else text)
    return out
