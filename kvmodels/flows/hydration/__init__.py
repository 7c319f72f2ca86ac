"""Make documents, objects and selected values of stored rows."""
