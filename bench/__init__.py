"""modlab beside the alternatives: ratios of CPU time taken in one run; nothing here gates."""
