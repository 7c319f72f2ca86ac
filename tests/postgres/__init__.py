"""The engine on PostgreSQL: faults of the server and of the network, settings, permissions, round trips."""
