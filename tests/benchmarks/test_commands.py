"""The command line of the benchmarks."""

from __future__ import annotations

import pytest

from benchmarks.__main__ import RESULTS, arguments, main, parts_of
from benchmarks.results import Results


@pytest.mark.parametrize(
    ("said", "parts"), [([], "usual"), (["growth", "page"], ["growth", "page"]), (["--rounds", "2"], "usual")]
)
def test_parts_need_not_be_named(said, parts):
    assert arguments(said).part == parts


def test_the_usual_parts_can_be_named_with_growth():
    usual = ["rows", "imports", "concurrency", "page"]
    assert parts_of(arguments([])) == usual
    assert parts_of(arguments(["usual", "growth", "page"])) == [*usual, "growth"]


ELSEWHERE = ["--results", "elsewhere.json"]
REFUSED = {
    ("tables",): "invalid choice: 'tables'",
    ("rows", "--columns", "nosuch"): "no column has 'nosuch' in its name; the columns are kvmodels-memory, ",
    ("--records", "0"): "a whole number of at least 1 is needed, not '0'",
    ("--rounds", "-1"): "a whole number of at least 1 is needed, not '-1'",
    ("growth", "--sizes", "3", "--rounds", "4"): "a size is smaller than the number of rounds",
    ("rows", "--columns", "kvmodels", "floor"): "would drop the figures of the other columns",
    ("imports", "--columns", "floor", "--docs", "elsewhere"): "would drop the figures of the other columns",
    ("--columns", "floor", *ELSEWHERE): "the page of the documentation shows all columns",
    ("page", "--columns", "floor"): "the page of the documentation shows all columns",
    ("page", *ELSEWHERE): "the page of the documentation shows the figures kept beside it",
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_cannot_be_measured_or_would_spoil_the_page_is_refused(said, capsys):
    with pytest.raises(SystemExit):
        arguments(said)
    assert REFUSED[said] in capsys.readouterr().err


@pytest.mark.parametrize(
    "said",
    [
        ["rows", "--columns", "floor", *ELSEWHERE],
        ["--columns", "floor", "--docs", "elsewhere", *ELSEWHERE],
        ["page", "--columns", "floor", "--docs", "elsewhere"],
    ],
)
def test_a_run_of_some_columns_may_be_written_elsewhere(said):
    assert arguments(said) is not None


def test_the_help_is_for_those_who_measure(capsys):
    with pytest.raises(SystemExit):
        arguments(["--help"])
    shown = capsys.readouterr().out
    assert "Rules of this module" not in shown
    assert "Measure kvmodels beside hand-written code" in shown


def test_the_page_alone_needs_neither_peers_nor_folders(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    main(["page", "--columns", "kvmodels-memory", "floor-memory", "--docs", str(tmp_path / "new")])
    text = (tmp_path / "new" / "benchmarks.md").read_text("utf-8")
    assert "floor, memory" in text
    assert "|  | kvmodels, memory | floor, memory |\n" in text
    assert (tmp_path / "new" / "assets" / "bench-memory.svg").exists()
    assert "wrote" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["floor"], ["kvmodels-memory"], ["async"], ["zodb"]])
def test_a_page_of_few_columns_can_be_written(words, tmp_path):
    main(["page", "--columns", *words, "--docs", str(tmp_path)])
    text = (tmp_path / "benchmarks.md").read_text("utf-8")
    assert ("## Growth" in text) == (words in (["floor"], ["kvmodels-memory"]))
    assert ("## Many tasks" in text) == (words == ["async"])


def test_a_page_of_no_figures_is_refused(tmp_path):
    with pytest.raises(SystemExit, match="there are no figures in"):
        main(["page", "--results", str(tmp_path / "none.json"), "--docs", str(tmp_path)])


def test_a_run_without_a_page_prints_its_figures_and_keeps_the_rest(tmp_path, monkeypatch, capsys):
    kept = tmp_path / "r.json"
    before = Results.load(RESULTS)
    before.save(kept)
    monkeypatch.setattr("benchmarks.imports.EVERYTHING", {"kvmodels": "pass", "pydantic": "pass"})
    main(["imports", "--columns", "kvmodels-memory", "--rounds", "1", "--results", str(kept)])
    shown = capsys.readouterr().out
    assert "| kvmodels | " in shown
    assert f"python -m benchmarks page --results {kept} --docs FOLDER" in shown
    after = Results.load(kept)
    assert len(after.imports["kvmodels"]) == 3
    assert set(after.measured["imports"]) == {"on", "commit"}
    assert {part: origin for part, origin in after.measured.items() if part != "imports"} == {
        part: origin for part, origin in before.measured.items() if part != "imports"
    }
    assert after.figures == before.figures
