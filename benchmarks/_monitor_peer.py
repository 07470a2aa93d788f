"""Inside the peers' environment: when MAPIE's RiskMonitoring sees a break, on streams of a folder.

    python -m benchmarks._monitor_peer STREAMS.npy --threshold 0.1 --batch 50

Prints one JSON document: MAPIE's version, and for each stream the number of the batch at which its lower limit is above
the threshold for the first time, or null. Its limits are a sequence over all samples, so one update gives all looks.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json

import numpy as np


def first_alarms(streams: np.ndarray, threshold: float, batch: int, level: float) -> list[int | None]:
    """The first batch, from 1 on, after which there is an alarm."""
    from mapie.exchangeability_testing import RiskMonitoring

    alarms: list[int | None] = []
    for wrong in streams:
        monitor = RiskMonitoring(risk="accuracy", test_level=level, threshold=threshold, warn=False)
        monitor.update(np.zeros(len(wrong), int), wrong.astype(int))
        limits = monitor.online_risk_lower_bound_sequence_history[batch - 1 :: batch]
        over = np.flatnonzero(limits > threshold)
        alarms.append(int(over[0]) + 1 if len(over) else None)
    return alarms


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("streams")
    parser.add_argument("--threshold", type=float, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--level", type=float, default=0.05)
    given = parser.parse_args()
    found = first_alarms(np.load(given.streams), given.threshold, given.batch, given.level)
    print(json.dumps({"version": importlib.metadata.version("mapie"), "alarms": found}))
