"""The classic checks that run a model, each an experiment with an outcome."""
