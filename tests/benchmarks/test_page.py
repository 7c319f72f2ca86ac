"""The page in the documentation is the one that the kept results make."""

from __future__ import annotations

from benchmarks import overview, page
from benchmarks.__main__ import RESULTS
from benchmarks.ratios import ratio
from benchmarks.results import Results, origin_now, rounded
from tests.source_tree import REPOSITORY


def test_the_page_and_its_charts_are_made_of_the_kept_results(tmp_path):
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


def test_the_origin_of_a_measurement_is_a_time_and_a_commit(tmp_path):
    origin = origin_now(tmp_path)
    assert origin["on"].endswith(" UTC")
    assert origin["commit"] == "unknown"
    assert Results(measured={"rows": origin}).origin("rows") == f"on {origin['on']}, of commit unknown"
    assert Results().origin("rows") == "in an earlier run"


def test_the_page_begins_with_the_chart_and_with_findings_that_follow_from_the_results():
    results = Results.load(RESULTS)
    text = page.page(results)
    assert text.index("bench-summary.svg") < text.index("**Get by key** is") < text.index("## Charts")
    assert text.index("## Charts") < text.index("## Aims") < text.index("## Tables") < text.index("## Method")
    mine, peer = overview.default(results), overview.default(results, "Django")
    assert mine is not None
    assert peer is not None
    found = ratio(results.samples("get", peer), results.samples("get", mine))
    assert found is not None
    assert f"{overview.rounded(found.middle)} with Django" in text


def test_a_run_without_the_default_engine_has_no_summary(tmp_path):
    results = Results.load(RESULTS)
    few = results.of_columns(column for column in results.columns if column.engine == "memory")
    assert overview.picture(few) is None
    assert "bench-summary.svg" not in {path.name for path in page.write(few, tmp_path)}
    assert "bench-summary.svg" not in page.page(few)
