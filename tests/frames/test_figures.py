"""The benchmark of tables, at a toy size."""

from __future__ import annotations

from benchmarks import tables


def test_the_figures_of_a_parquet_file_are_taken():
    figures = tables.measured(300)
    assert figures.rows == 300
    assert figures.seconds > 0
    assert "300 rows" in tables.shown(figures)
