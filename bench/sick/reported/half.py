"""Collects what the files beside it make."""

from bench.sick.cases import Half

HALF = Half("reported")
