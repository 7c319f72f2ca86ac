"""Index maintenance: the write compiler, index entries, aggregates and budgets; pure."""
