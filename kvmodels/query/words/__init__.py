"""Access to indexes of words: the entries that a condition reads, and the scores of records."""
