"""Particulars of each engine: files, faults of disks and systems, interrupts."""
