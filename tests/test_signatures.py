"""The synchronous facades are generated from the asynchronous ones, and their signatures agree."""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncIterator, Callable, Iterator
from functools import cache
from typing import Any, Protocol

import pytest

from tests.facades import facade_functions, facade_pairs, public_methods, public_properties
from tests.source_tree import shown
from tools import unasync

PROTOCOLS = {
    "__enter__": "__aenter__",
    "__exit__": "__aexit__",
    "__iter__": "__aiter__",
    "__next__": "__anext__",
    "__getitem__": "__getitem__",
    "__len__": "__len__",
    "__contains__": "__contains__",
}

# An asynchronous store is opened where an event loop runs, so only it has a method for that.
ONLY_ASYNCHRONOUS = {("Database", "open"), ("Kv", "open"), ("KvSnapshot", "open")}

REQUIRED_PAIRS = {"Database", "Kv", "QuerySet", "Repository"}


def plain(annotation: Any) -> str:
    """An annotation as text, without what only tells the two worlds apart."""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    text = re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Z])", "", text)  # a module, which one of the two may load late
    text = re.sub(r"\bAsync(?=[A-Z])", "", text)
    text = re.sub(r"\b(?:Awaitable|Coroutine\[Any, Any,)\[?", "Awaited[", text)
    return text.replace("AbstractContextManager", "ContextManager").replace(" ", "")


def returned(function: Callable[..., Any]) -> str:
    """Return the result type of a call: of an awaited coroutine its result, of an iterator its kind and items."""
    text = plain(inspect.signature(function).return_annotation)
    return re.sub(r"^Awaited\[(.*)\]$", r"\1", text)


def differences(name: str, sync: Callable[..., Any], other: Callable[..., Any]) -> list[str]:
    """How two signatures differ."""
    found = []
    ours = list(inspect.signature(sync).parameters.values())
    theirs = list(inspect.signature(other).parameters.values())
    if [p.name for p in ours] != [p.name for p in theirs]:
        return [f"{name}: parameters {[p.name for p in ours]} and {[p.name for p in theirs]}"]
    for mine, its in zip(ours, theirs, strict=True):
        if (mine.kind, mine.default) != (its.kind, its.default):
            found.append(f"{name}: {mine} and {its}")
        # A function that is called becomes a coroutine function.
        if plain(mine.annotation) != re.sub(r"Awaited\[(\w+)\]", r"\1", plain(its.annotation)):
            found.append(f"{name}: {mine.name} is {mine.annotation} and {its.annotation}")
    if returned(sync) != returned(other):
        found.append(f"{name}: returns {returned(sync)} and {returned(other)}")
    return found


def pair_differences(sync: type, other: type) -> list[str]:
    """How two facades differ: names, parameters, results, protocols."""
    name = sync.__name__
    ours, theirs = public_methods(sync), public_methods(other)
    only = {method for cls, method in ONLY_ASYNCHRONOUS if cls == name}
    found = [f"{name}: only synchronous: {method}" for method in sorted(ours.keys() - theirs.keys())]
    found += [f"{name}: only asynchronous: {method}" for method in sorted(theirs.keys() - ours.keys() - only)]
    found += [f"{name}: property of one only: {p}" for p in sorted(public_properties(sync) ^ public_properties(other))]
    for method in sorted(ours.keys() & theirs.keys()):
        found += differences(f"{name}.{method}", ours[method], theirs[method])
    for mine, its in PROTOCOLS.items():
        if hasattr(sync, mine) != hasattr(other, its):
            found.append(f"{name}: {mine} without {its}, or the reverse")
    return found


generated = cache(unasync.generated)


def test_the_synchronous_facades_are_fresh():
    stale = {shown(path) for path, text in generated().items() if path.read_text("utf-8") != text}
    assert not stale, f"run python tools/unasync.py: {stale}"


def test_no_synchronous_module_has_lost_its_source():
    modules = {path for path in unasync.TARGET.rglob("*.py") if path.name not in unasync.BY_HAND}
    assert modules == {*generated()}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = await f(await g())\n", "x = f(g())\n"),
        ("x = (await f()).g\n", "x = f().g\n"),
        ("async with a as b:\n    pass\n", "with a as b:\n    pass\n"),
        ("def f() -> Coroutine[Any, Any, list[int]]: ...\n", "def f() -> list[int]: ...\n"),
        ("class AsyncKv(_AsyncPart): ...\n", "class Kv(_Part): ...\n"),
        ("x = 1\n# async only\ny = 1\n# end async only\n", "x = 1\n"),
        ('"""\n>>> db = await AsyncDatabase("x").open()\n"""\n', '"""\n>>> db = Database("x")\n"""\n'),
        ('"""\n>>> (await kv.get(f(1))).value\n"""\n', '"""\n>>> kv.get(f(1)).value\n"""\n'),
        ("# AsyncKv awaits\n", "# Kv awaits\n"),
    ],
)
def test_the_generator_makes_code_and_examples_synchronous(source, expected):
    header, _, text = unasync.converted(source, "sample.py").partition("\n")
    assert header.startswith("# Generated from kvmodels/api/_async/sample.py")
    assert text == expected


def test_every_facade_has_its_twin():
    assert facade_pairs().keys() >= REQUIRED_PAIRS


def test_synchronous_and_asynchronous_facades_have_equal_signatures():
    found = [text for sync, other in facade_pairs().values() for text in pair_differences(sync, other)]
    assert not found, "\n".join(found)


def test_the_functions_that_open_a_store_have_equal_signatures():
    functions = facade_functions()
    assert differences("open_kv", functions["open_kv"], functions["open_async_kv"]) == []


class Reader(Protocol):
    def get(self, key: str, *, limit: int = 1) -> int | None: ...

    def stream(self) -> Iterator[int]: ...

    def twin(self) -> Reader: ...


class AsyncReader(Protocol):
    async def get(self, key: str, *, limit: int = 1) -> int | None: ...

    def stream(self) -> AsyncIterator[int]: ...

    def twin(self) -> AsyncReader: ...


class Narrow(Protocol):
    async def get(self, key: str) -> int | None: ...


class OtherDefault(Protocol):
    async def get(self, key: str, *, limit: int = 2) -> int | None: ...


class OtherResult(Protocol):
    async def get(self, key: str, *, limit: int = 1) -> str: ...


class OtherType(Protocol):
    async def get(self, key: bytes, *, limit: int = 1) -> int | None: ...


def method_differences(other: type) -> list[str]:
    return differences("get", Reader.get, vars(other)["get"])


def test_the_signature_check_notices():
    for name in ("get", "stream", "twin"):
        assert differences(name, vars(Reader)[name], vars(AsyncReader)[name]) == []
    assert all(method_differences(cls) for cls in (Narrow, OtherDefault, OtherResult, OtherType))


def test_the_signature_check_notices_missing_methods_and_protocols(monkeypatch):
    monkeypatch.setitem(globals(), "public_methods", lambda cls: {k: v for k, v in vars(cls).items() if k[0] != "_"})
    assert pair_differences(Reader, AsyncReader) == []
    assert "Reader: only synchronous: stream" in pair_differences(Reader, Narrow)

    class Iterable(Reader, Protocol):
        def __iter__(self) -> Iterator[int]: ...

    assert any("__iter__" in text for text in pair_differences(Iterable, AsyncReader))
