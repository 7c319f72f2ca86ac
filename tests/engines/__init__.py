"""What one engine does by itself: files, faults of disks and systems, interrupts."""
