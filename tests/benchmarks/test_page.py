"""The page in the documentation is the one that the kept results make."""

from __future__ import annotations

from benchmarks import page
from benchmarks.__main__ import RESULTS
from benchmarks.results import Results, rounded
from tests.source_tree import REPOSITORY


def test_the_page_and_its_charts_are_made_of_the_kept_results(tmp_path):
    (tmp_path / "assets").mkdir()
    written = page.write(Results.load(RESULTS), tmp_path)
    assert len(written) > 3
    for path in written:
        kept = REPOSITORY / "docs" / path.relative_to(tmp_path)
        assert path.read_text("utf-8") == kept.read_text("utf-8"), f"{kept.name}: run `python -m benchmarks page`"


def test_results_survive_being_saved(tmp_path):
    results = Results.load(RESULTS)
    results.save(tmp_path / "again.json")
    assert Results.load(tmp_path / "again.json") == results
    assert rounded({"a": [1.23456789, None, "x", 7]}) == {"a": [1.23457, None, "x", 7]}
