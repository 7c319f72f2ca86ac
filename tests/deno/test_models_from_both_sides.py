"""Records of one store, written by Python and by the real Deno with ``deno/kvmodels.ts``: the same rows from both."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from kvmodels import Database
from kvmodels.codecs.v8.codec import V8Codec
from kvmodels.core.keys import decode_key
from kvmodels.core.operations import Row
from tests.deno.members import Member, Plan, as_script, attempt, fill, operations
from tests.deno.runtime import run_script
from tests.deno.stores import from_deno, rows_of, to_deno

WRITE = Path(__file__).with_name("write_models.ts")

RESERVED = b"\x02__kvmodels__"


def canonical(row: Row) -> tuple[Any, bytes, int]:
    """A row as Python writes its value: Deno writes another version number before a value, and no marks in it."""
    codec = V8Codec()
    if row.encoding != 1 or row.key.startswith(RESERVED):
        return decode_key(row.key), row.value, row.encoding
    value = codec.decode_document(row.value, row.encoding) if row.value[2:3] == b"o" else codec.decode(row.value, 1)
    if isinstance(value, dict):
        value["score"] = float(value.get("score", 0))
        value = dict(sorted(value.items()))
    return (
        decode_key(row.key),
        codec.encode_document(value)[0] if isinstance(value, dict) else codec.encode(value)[0],
        1,
    )


def keys(records: Any) -> list[list[Any]]:
    return [[record.team, record.number] for record in records]


def queries(db: Database) -> list[tuple[dict[str, Any], dict[str, Any], list[list[Any]]]]:
    """Lists of Deno with the results of Python."""
    members = db[Member]
    every = members.all().to_list()
    at = {"$": "date", "of": "2026-01-02T03:04:05.123Z"}
    return [
        ({}, {}, keys(members.order_by("team", "number"))),
        ({"prefix": ["a"]}, {"reverse": True, "limit": 5}, keys(members.filter(team="a").order_by("-number")[:5])),
        (
            {"start": ["a", 10], "end": ["b", 3]},
            {},
            keys(
                sorted(
                    (m for m in every if ("a", 10) <= (m.team, m.number) < ("b", 3)), key=lambda m: (m.team, m.number)
                )
            ),
        ),
        ({"index": "plan", "prefix": ["pro"]}, {}, keys(members.filter(plan=Plan.PRO).order_by("team", "number"))),
        (
            {"index": "email", "startsWith": "STRASSE"},
            {},
            keys(members.filter(email__startswith="straße").order_by("email")),
        ),
        ({"index": "nick", "prefix": [None]}, {}, keys(members.filter(nick=None).order_by("team", "number"))),
        ({"index": "email_down"}, {}, keys(members.order_by("-email"))),
        ({"index": "badge"}, {}, keys(members.filter(badge__isnull=False).order_by("badge"))),
        (
            {"index": "score", "start": [-2.25], "end": [1.5]},
            {"batchSize": 2},
            keys(members.filter(score__gte=-2.25, score__lt=1.5).order_by("score", "team", "number")),
        ),
        (
            {"index": "plan_score_born", "prefix": ["pro"], "start": ["pro", 1.5]},
            {},
            keys(members.filter(plan=Plan.PRO, score__lte=1.5).order_by("-score", "born", "team", "number")),
        ),
        (
            {"index": "born", "startsWith": "2024-"},
            {},
            keys(members.filter(born=date(2024, 2, 29)).order_by("team", "number")),
        ),
        ({"index": "seen", "prefix": [at]}, {}, keys(members.filter(seen=datetime(2026, 1, 2, 3, 4, 5, 123_000, UTC)))),
        (
            {"index": "price", "end": ["0.0"]},
            {},
            keys(members.filter(price__lt=Decimal(0)).order_by("price", "team", "number")),
        ),
        (
            {"index": "labels", "prefix": ["ss"]},
            {},
            keys(members.filter(labels__contains="ß").order_by("team", "number")),
        ),
        ({"index": "flag", "prefix": [True]}, {}, keys(members.filter(flag=True).order_by("team", "number"))),
        ({"index": "big"}, {"reverse": True}, keys(reversed(members.order_by("big", "team", "number").to_list()))),
        (
            {"index": "address_city", "prefix": ["ada"]},
            {},
            keys(members.filter(address__city="ada").order_by("team", "number")),
        ),
    ]


def exchange(tmp_path: Path, records: int, count: int) -> set[str]:
    """Write in Python, then in Deno and again in Python, and compare everything; returns the results of the writes."""
    file, source = tmp_path / "kv.sqlite3", tmp_path / "input.json"
    url = f"memory://from-deno-{count}"
    with Database(models=[Member], codec="v8") as db, Database(url, codec="v8") as back:
        fill(db, records)
        to_deno(db, file)
        made = operations(count)
        expected = [attempt(db, operation) for operation in made]
        asked = queries(db)
        first = next(member for member in db[Member].order_by("team", "number") if member.desk is not None)
        written = {
            "operations": [as_script(operation) for operation in made],
            "lists": [[selector, options] for selector, options, _ in asked],
            "lookups": [["email", first.email.upper()], ["email", "nobody"], ["desk", first.desk]],
        }
        source.write_text(json.dumps(written), encoding="utf-8")
        answered = json.loads(run_script(WRITE, file, str(source)))
        assert answered["results"] == expected
        for (selector, options, found), listed in zip(asked, answered["lists"], strict=True):
            assert listed == found, (selector, options)
        assert answered["found"] == [*keys([first]), None, *keys([first])]
        paged = [key for page in answered["pages"] for key in page]
        assert sorted(paged) == keys(member for member in db[Member].order_by("team", "number") if member.tags)
        from_deno(file, back)
        assert list(map(canonical, rows_of(back))) == list(map(canonical, rows_of(db)))
        with Database(url, models=[Member], codec="v8") as read:
            assert read[Member].all().to_list() == db[Member].all().to_list()
            report = read.check()
            assert report.ok, report
        return set(expected) | {"found" for _, _, found in asked if found}


def test_records_of_python_are_found_and_changed_by_deno_with_the_same_rows(tmp_path):
    assert {"ok", "found"} < exchange(tmp_path, 12, 30)


@pytest.mark.servers
def test_two_hundred_writes_of_deno_give_the_rows_of_python(tmp_path):
    every_result = {"ok", "absent", "already_exists", "unique_violation", "not_found", "found"}
    assert exchange(tmp_path, 40, 200) == every_result
