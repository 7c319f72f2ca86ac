"""Pages of the tenants of a store: a list, and the pages of each tenant below it."""
