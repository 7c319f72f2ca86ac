"""Tests of followers."""
