"""Doctests of modules run as a reader would type them, at the prompt of ``python -m asyncio`` where they await."""

from __future__ import annotations

import ast
import asyncio
import doctest
import inspect
from collections.abc import Iterator
from types import CodeType
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def doctests_without_the_future_of_their_module(doctest_namespace: dict[str, Any]) -> None:
    """Keep ``from __future__ import annotations`` of a module out of its examples.

    A doctest takes it over, so the annotations of a model in an example would be texts, which pydantic looks up in
    the module and not among the names of the example.
    """
    doctest_namespace["annotations"] = None


@pytest.fixture(scope="session", autouse=True)
def doctests_that_await() -> Iterator[None]:
    """Let examples await at the top level: all of them run in one event loop, which rests between two examples."""
    flags_of = getattr(doctest, "_extract_future_flags")  # noqa: B009 - private, so typeshed does not list it
    runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)

    def with_await(names: dict[str, Any]) -> int:
        return int(flags_of(names)) | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT

    def run(code: CodeType, names: dict[str, Any]) -> None:
        result = eval(code, names)  # noqa: S307 - the examples of this package
        if code.co_flags & inspect.CO_COROUTINE:
            runner.run(result)

    with pytest.MonkeyPatch.context() as patch, runner:
        patch.setattr(doctest, "_extract_future_flags", with_await)
        patch.setattr(doctest, "exec", run, raising=False)
        yield
