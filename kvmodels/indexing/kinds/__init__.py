"""Maintenance of an index of each kind: one module for each kind, named by the table in ``registry``; pure."""
