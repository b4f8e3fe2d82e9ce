"""The frozen dataclasses that cross layers: plain numbers, strings and tuples, and numpy arrays where there are many numbers."""
