"""``rows``, ``count``, ``explain``, ``insert`` and ``export``, with classes and with a URL alone."""

from __future__ import annotations

import csv
import io
import json
from importlib import import_module
from typing import Any

import pytest

from tests.cli.airports import PROGRAM
from tests.cli.conftest import entries_in

APP = "airports_app:db"


@pytest.fixture(params=["airports.db", "lmdb:///airports.lmdb"])
def url(request: pytest.FixtureRequest, folder, monkeypatch: pytest.MonkeyPatch, run) -> str:
    """The URL of a filled store; commands use the program of its models."""
    del run  # it lets the folder's programs be imported again
    (folder / "airports_app.py").write_text(PROGRAM)
    monkeypatch.setenv("AIRPORTS", request.param)
    monkeypatch.setenv("KVMODELS_DATABASE", APP)
    monkeypatch.syspath_prepend(str(folder))
    vars(import_module("airports_app"))["fill"]()
    return request.param


def printed(result: Any) -> Any:
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_rows_are_filtered_ordered_and_paged(url, run):
    first = run("rows", "airports", "country=CH", "-o", "-elevation", "-l", "2")
    assert [one["icao"] for one in printed(first)] == ["LSZB", "LSZH"]
    cursor = first.stderr.split("--after ")[1].strip()
    last = run("rows", "airports", "country=CH", "-o", "-elevation", "-l", "2", "--after", cursor)
    assert [one["icao"] for one in printed(last)] == ["LSGG"]
    assert last.stderr == ""
    scanned = printed(run("rows", "Airport", "size__in=large", "runway__lt=1", "-o", "icao", "--scan"))
    assert [one["icao"] for one in scanned] == ["LSGG", "LSZH"]


def test_rows_have_four_formats(url, run):
    words = ("rows", "airports", "services__contains=rail")
    one, two = printed(run(*words))
    assert (one["icao"], one["size"], one["services"]) == ("LSGG", "large", ["rail"])
    assert [json.loads(line) for line in run(*words, "--nl").stdout.splitlines()] == [one, two]
    rows = list(csv.DictReader(io.StringIO(run(*words, "--csv").stdout)))
    assert [row["services"] for row in rows] == ['["rail"]', '["rail", "tram"]']
    table = run(*words, "--table").stdout.splitlines()
    assert table[0].split()[:3] == ["icao", "country", "city"]
    assert table[1].startswith("LSGG  CH       Genève  1411       large")


def test_count_and_explain_use_the_same_conditions(url, run):
    assert run("count", "airports", "country=CH").stdout == "3\n"
    assert run("count", "airports", "--json").stdout == "4\n"
    assert "highest" in run("explain", "airports", "country=CH", "-o", "-elevation").stdout
    plan = printed(run("explain", "airports", "country=CH", "--json"))
    assert plan["scans"]


def test_a_url_alone_prints_documents_as_they_are_stored(url, run):
    words = ("-d", url, "rows", "airports", "-l", "3")
    first = run(*words)
    assert [one["icao"] for one in printed(first)] == ["BIRK", "LSGG", "LSZB"]
    cursor = first.stderr.split("--after ")[1].strip()
    assert [one["icao"] for one in printed(run(*words, "--after", cursor))] == ["LSZH"]
    assert run("-d", url, "count", "airports").stdout == "4\n"
    lines = run("-d", url, "export", "countries").stdout.splitlines()
    assert [json.loads(line) for line in lines] == [
        {"code": "CH", "name": "Switzerland"},
        {"code": "IS", "name": "Iceland"},
    ]


def test_what_export_prints_is_inserted_into_another_store(url, run, folder, monkeypatch):
    before = printed(run("export", "airports", "--json"))
    for form in ("--nl", "--json", "--csv"):
        monkeypatch.setenv("AIRPORTS", url)
        countries, airports = (run("export", name, form).stdout for name in ("countries", "airports"))
        monkeypatch.setenv("AIRPORTS", f"copy{form}.db")
        assert run("apply").exit_code == 0
        (folder / "countries").write_text(countries)
        options = ["--csv"] if form == "--csv" else []
        assert run("insert", "countries", "countries", *options).stderr == "2 records written\n"
        assert run("insert", "airports", "-", *options, stdin=airports).stderr == "4 records written\n"
        assert printed(run("export", "airports", "--json")) == before


REFUSED = {
    ("rows", "airport"): "no model is called 'airport'. Did you mean airports?",
    ("rows", "airports", "elevatio=1"): "suggestion='elevation'",
    ("rows", "airports", "elevation__gt=high"): "parameter='elevation__gt'",
    ("rows", "airports", "elevation"): "'elevation' is not a condition",
    ("rows", "airports", "order_by=icao"): "an order is not a condition",
    ("rows", "airports", "-o", "height"): "parameter='order_by'",
    ("rows", "airports", "--after", "x"): "[KV704]",
    ("rows", "airports", "--csv", "--nl"): "more than one format was given",
    ("rows", "airports", "-l", "0"): "greater than or equal to 1",
    ("insert", "countries", "missing.json"): "missing.json cannot be read: No such file or directory",
    ("insert", "countries", "."): ". cannot be read: Is a directory",
}


def test_a_wrong_command_line_is_explained(url, run):
    before = entries_in(url)
    for words, message in REFUSED.items():
        result = run(*words)
        assert (words, result.exit_code, result.stdout) == (words, 2, "")
        assert message in result.stderr
    assert entries_in(url) == before


def test_a_query_without_an_index_is_refused_with_the_options_that_allow_it(url, run):
    for command in ("rows", "count", "explain", "export"):
        result = run(command, "airports", "runway=1")
        assert (result.exit_code, result.stdout) == (1, "")
        assert "[KV703]" in result.stderr
        assert "give --scan to read all of 'airports'" in result.stderr
    words = ("rows", "airports", "country=CH", "-o", "runway")
    assert "give --sort-in-memory N to sort the results" in run(*words).stderr
    assert len(printed(run(*words, "--sort-in-memory", "3"))) == 3


def test_conditions_need_classes(url, run):
    for words in (["rows", "airports", "country=CH"], ["count", "airports", "country=CH"], ["explain", "airports"]):
        result = run("-d", url, *words)
        assert result.exit_code == 2
        assert "a URL has no model classes" in result.stderr
    missing = run("-d", url, "rows", "airport")
    assert missing.exit_code == 2
    assert "no collection is called 'airport'. There are: airports, countries." in missing.stderr


FAULTY = {
    '{"code": "DE", "name": "Germany"}\n{"code": "FR"}\n': "line 2: name: Field required",
    '{"code": "DE", "name": "Germany"}\n{"code": \n': "line 2: Invalid JSON",
    '[{"code": "DE", "name": "Germany"}, 7]': "record 2: ",
    '[{"code": "DE"': "malformed JSON",
    "[" * 100_000: "the JSON is nested too deeply",
    '{"code": ' + "[" * 100_000: "line 1: Invalid JSON: recursion limit exceeded",
    '{"code": "DE", "name": "Germany"}\n{"code": "FR", "nam": "x", "name": "France"}\n': (
        "line 2: Country has no field 'nam'. Did you mean name? "
    ),
    '{"code": "DE", "nam": "Germany"}': "line 1: Country has no field 'nam'. Did you mean name? ",
    "code,name\nDE,Germany\nFR\n": "line 3: name: Field required",
    "code,name\nDE,Germany,x\n": "line 2: more cells than names",
    "code,nam\nDE,Germany\n": "line 1: Country has no field 'nam'",
}


def test_nothing_is_inserted_from_a_file_with_a_fault(url, run):
    before = entries_in(url)
    for text, message in FAULTY.items():
        result = run("insert", "countries", "-", *(["--csv"] if text.startswith("code") else []), stdin=text)
        assert (text, result.exit_code) == (text, 2)
        assert message in result.stderr
    assert entries_in(url) == before


def test_a_cell_of_csv_is_json_only_where_its_field_takes_no_text(url, run):
    lines = 'icao,country,city,elevation,services\nLSZA,CH,"[""x""]",915,"[""rail""]"\n'
    assert run("insert", "airports", "-", "--csv", stdin=lines).exit_code == 0
    [record] = printed(run("rows", "airports", "icao=LSZA"))
    assert (record["city"], record["services"]) == ('["x"]', ["rail"])
    deep = run("insert", "airports", "-", "--csv", stdin=f"icao,services\nLSZB,{'[' * 100_000}\n")
    assert (deep.exit_code, "line 2: " in deep.stderr) == (2, True)


def test_existing_records_are_refused_or_replaced(url, run):
    line = '{"code": "CH", "name": "Schweiz"}\n'
    before = entries_in(url)
    refused = run("insert", "countries", "-", stdin=line)
    assert refused.exit_code == 1
    assert refused.stderr.startswith("Error: line 1: [KV301] ")
    assert "position=" not in refused.stderr
    assert "--replace" in refused.stderr
    assert entries_in(url) == before
    assert run("insert", "countries", "-", "--replace", stdin=line).stderr == "1 record written\n"
    assert printed(run("rows", "countries", "code=CH"))[0]["name"] == "Schweiz"
    assert run("insert", "countries", "-", "--readonly", stdin=line).exit_code == 2
