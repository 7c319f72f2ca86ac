"""Access to the kinds of indexes: one module for each, listed in ``registry``; pure."""
