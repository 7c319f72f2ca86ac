"""Foreign keys in flows: what a refused commit raises, entries of removed targets, anchors of busy ones, and reads."""
