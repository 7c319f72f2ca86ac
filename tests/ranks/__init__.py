"""Indexes of ranks: buckets, boards, writers beside them, and costs."""
