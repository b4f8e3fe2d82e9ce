"""Where a lesson computes."""

from __future__ import annotations

import os

import torch

VARIABLE = "MODLAB_DEVICE"


def current() -> torch.device:
    """This machine's accelerator, else its CPU; the variable ``MODLAB_DEVICE`` overrides that."""
    wanted = os.environ.get(VARIABLE)
    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return torch.device(wanted) if wanted else found or torch.device("cpu")
