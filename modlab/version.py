"""The version, in the one place from which the package, the wheel and the front end take it."""

__version__ = "0.1.0"
