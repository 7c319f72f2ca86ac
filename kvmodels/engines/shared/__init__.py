"""Parts that several engines share: clock, expiry, group commit, signals, file checks."""
