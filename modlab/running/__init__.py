"""The basis for all code that works on a running model: one pair of global hooks, one way to restore state, one rule for our own errors."""
