"""A report that nobody measured."""

from __future__ import annotations

from typing import Any

METRICS = [
    {"name": "messages_per_s", "unit": "messages/s", "is_more_better": True},
    {"name": "p50_us", "unit": "p50, μs", "is_more_better": False},
]


def runs(*pairs: tuple[float, float]) -> list[dict[str, float]]:
    return [{"messages_per_s": rate, "p50_us": delay} for rate, delay in pairs]


def results(**contenders: list[dict[str, float]]) -> dict[str, Any]:
    return {
        "question": "How fast?",
        "metrics": METRICS,
        "contenders": {
            name.replace("_", " "): {"runs": found, "failures": []}
            for name, found in contenders.items()
        },
    }


def report(**scenarios: dict[str, Any]) -> dict[str, Any]:
    return {"machine": {"cores": 2}, "command": "python -m benchmarks", "scenarios": scenarios}
