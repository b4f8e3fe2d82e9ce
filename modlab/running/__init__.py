"""What everything at work on a model stands on: one pair of global hooks, one way of putting back, one rule for errors of ours."""
