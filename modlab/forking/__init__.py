"""What a fork stands on: steps of a training on a tape, kept states to begin from, and what plays them again."""
