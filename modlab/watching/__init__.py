"""A model while it trains: samples of some steps, their history, and what they say."""
