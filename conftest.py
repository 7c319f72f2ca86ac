"""Doctests of modules run as a reader would type them."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture(autouse=True)
def doctests_without_the_future_of_their_module(doctest_namespace: dict[str, Any]) -> None:
    """Keep ``from __future__ import annotations`` of a module out of its examples.

    A doctest takes it over, so the annotations of a model in an example would be texts, which pydantic looks up in
    the module and not among the names of the example.
    """
    doctest_namespace["annotations"] = None
