"""`aeron-async explain`, asked and read back as values."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from aeron_async.cli.main import main

if TYPE_CHECKING:
    import pytest


class Explainer:
    """Explains channels, and returns what was said as values."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, channel: str, code: int = 0) -> dict[str, Any]:
        assert main(["explain", channel, "--json"]) == code
        explained: dict[str, Any] = json.loads(self._capsys.readouterr().out)
        return explained

    def facts(self, channel: str, role: str) -> dict[str, str]:
        return {fact["what"]: fact["text"] for fact in self(channel)[role]["facts"]}

    def settings(self, channel: str) -> dict[str, tuple[str, str, str]]:
        return {
            setting["name"]: (setting["roles"], setting["value"], setting["origin"])
            for setting in self(channel)["settings"]
        }

    def advice(self, channel: str) -> str:
        return "\n".join(self(channel)["advice"])
