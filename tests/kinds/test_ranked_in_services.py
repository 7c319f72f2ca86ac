"""Ranked queries in a web service and in reports to observers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI
from fastapi.testclient import TestClient

from kvmodels import Database, FinishedOperation, Hit, Page
from kvmodels.ext.fastapi import Paging
from kvmodels.ext.rich_tree import plan_tree
from tests.kinds.lines import lines
from tests.kinds.ranked import ranked, stall_model, stalls


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    with lines():
        yield


def test_pages_of_hits_are_linked_in_both_directions():
    stall: Any = stall_model()
    db = Database("memory://", models=[stall])
    db[stall].bulk_create(stalls(9))
    app = FastAPI()

    def near(paging: Annotated[Paging, Depends()]) -> Any:
        return paging.linked(db[stall].nearest("at", 3).page(**paging.window))

    app.get("/near", response_model=Page[Hit[stall]])(near)
    client = TestClient(app)
    wanted = [[key, distance] for key, distance in ranked(stalls(9), 3)]

    def shown(answer: Any) -> list[Any]:
        return [[record["id"], distance] for record, distance in answer.json()["items"]]

    first = client.get("/near?size=4")
    second = client.get(first.links["next"]["url"])
    assert (shown(first), shown(second)) == (wanted[:4], wanted[4:8])
    assert shown(client.get(second.links["prev"]["url"])) == wanted[:4]
    assert "prev" not in first.links


def test_observers_are_told_of_the_index_and_the_plan():
    seen: list[FinishedOperation] = []
    stall = stall_model()
    with Database("memory://", models=[stall]) as db:
        db.add_observer(seen.append)
        db[stall].bulk_create(stalls(9))
        near = db[stall].nearest("at", 3)
        near[:2].to_list()
        list(near)
        near.page(2)
        near.count()
    finished = {one.verb: one for one in seen}
    for verb in ("to_list", "iterate", "page"):
        assert finished[verb].indexes == ("stalls.at_line",)
        plan = finished[verb].plan()
        assert plan is not None
        assert (plan.combine, plan.index) == ("ranked", "at_line")
        assert "nearest first" in str(plan_tree(plan).label)
    assert finished["to_list"].rows < 20
