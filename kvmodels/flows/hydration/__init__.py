"""Create documents, objects and selected values from stored rows."""
