"""The contract of every engine, whatever it stores in."""
