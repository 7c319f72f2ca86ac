"""Execution of query plans: ranges, merges, intersections, joins and sorts."""
