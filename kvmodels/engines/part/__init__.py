"""An engine for a part of a store: it adds a prefix to every key, and a check of the part's row to commits.

Rules of this package: it is the only place that confines a tenant. It knows nothing about tenants; the owner of the
part passes the prefix, the keys of two rows, and a function that decides whether the part may be used.
"""
