"""Whether a verdict is made of the record alone: one that was saved, loaded and judged again says the same."""

import json
import pickle
from dataclasses import replace
from typing import Any

from modlab.records.watch import Verdict, WatchRecord
from modlab.views.watch import columns
from modlab.watching.verdict import judged


def concluded(record: WatchRecord) -> str:
    """All that it came to, as text; of two that are alike it is the same."""
    return json.dumps(columns.of_conclusion(record), sort_keys=True)


def judged_again(record: WatchRecord) -> WatchRecord:
    """Saved without its verdict, loaded, and judged."""
    alerts = tuple(replace(alert, severity="broken") if alert.kind == "dead" else alert for alert in record.alerts)
    return judged(pickle.loads(pickle.dumps(replace(record, verdict=Verdict(()), alerts=alerts))))


def is_judged_alike(w: Any) -> bool:
    """Whether the record of a watch gives the verdict that the watch gave."""
    again = judged_again(w.record)
    return concluded(again) == concluded(w.record) and again.alerts == w.record.alerts
