"""`aeron-async explain`: what a channel means, before anything is opened."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

import attrs

from aeron_async.cli.explain_advice import advice
from aeron_async.cli.explain_roles import (
    RoleExplanation,
    explain_publication,
    explain_subscription,
)
from aeron_async.cli.explain_settings import AppliedSetting, applied_settings
from aeron_async.cli.options import Flag  # noqa: TC001 - cyclopts reads the annotation when it runs
from aeron_async.cli.output import make_console, print_json, safe_text
from aeron_async.cli.runner import ExitCode
from aeron_async.driver.core.context import DriverContext
from aeron_async.protocol.channel_uri import ChannelUri
from aeron_async.protocol.parameters import Role

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

__all__ = ["explain"]


COLUMN_GAP: Final = 3
# In less room than this a meaning is a tower of words; JSON has it always.
MEANING_WIDTH_MIN: Final = 24


def explain(channel: str, /, *more: str, json: Flag = False) -> int:
    """Say what a channel URI would bind, connect, join and send, and by which settings.

    Args:
        channel: Such as "aeron:udp?endpoint=127.0.0.1:20121"; mind the quotes.
        more: Further channels, explained one after the other.
        json: Explain as JSON, a line for each channel.
    """
    explanations = [Explanation.of(text) for text in (channel, *more)]
    for number, explanation in enumerate(explanations):
        if json:
            print_json(explanation.to_json())
        else:
            explanation.print(is_first=number == 0)
    is_possible = all(explanation.is_possible for explanation in explanations)
    return ExitCode.SUCCESS if is_possible else ExitCode.BAD_USAGE


@attrs.frozen(kw_only=True)
class Explanation:
    """Everything there is to say about a channel."""

    channel: str
    publication: RoleExplanation
    subscription: RoleExplanation
    settings: tuple[AppliedSetting, ...]
    advice: tuple[str, ...]
    is_possible: bool

    @classmethod
    def of(cls, text: str) -> Self:
        """Return what there is to say, by the settings of this environment.

        Raises:
            ChannelUriError: The text is no channel.
            ConfigurationError: The environment holds a setting that cannot be meant.
        """
        uri = ChannelUri.parse(text)
        context = DriverContext.from_environment()
        publication = explain_publication(uri, context)
        subscription = explain_subscription(uri, context)
        roles = {
            Role.PUBLICATION: publication,
            Role.SPY if uri.is_spy else Role.SUBSCRIPTION: subscription,
        }
        possible = frozenset(role for role, found in roles.items() if found.refusal is None)
        return cls(
            channel=str(uri),
            publication=publication,
            subscription=subscription,
            settings=tuple(applied_settings(uri, context, possible)),
            advice=tuple(advice(uri, context)),
            is_possible=bool(possible),
        )

    def to_json(self) -> dict[str, object]:
        """Return the explanation as JSON has it."""
        roles = {"publication": self.publication, "subscription": self.subscription}
        return {
            "channel": self.channel,
            **{
                name: {
                    "is_supported": role.refusal is None and role.unsupported is None,
                    "refusal": role.refusal,
                    "unsupported": role.unsupported,
                    "facts": [{"what": what, "text": text} for what, text in role.facts],
                }
                for name, role in roles.items()
            },
            "settings": [attrs.asdict(setting) for setting in self.settings],
            "advice": list(self.advice),
        }

    def print(self, *, is_first: bool) -> None:
        """Print the explanation for people."""
        from rich.table import Table  # noqa: PLC0415 - only this draws
        from rich.text import Text  # noqa: PLC0415 - likewise

        console = make_console()
        if not is_first:
            console.print()
        console.print(safe_text(self.channel, style="bold"))
        for title, role in (
            ("As a publication", self.publication),
            ("As a subscription", self.subscription),
        ):
            console.print(Text(f"\n{title}", style="bold cyan"))
            table = Table.grid(padding=(0, 2))
            table.add_column(min_width=10, style="dim")
            table.add_column()
            for what, text in role.facts:
                table.add_row(f"  {what}", safe_text(text))
            if role.refusal is not None:
                table.add_row("  refused", safe_text(role.refusal, style="red"))
            if role.unsupported is not None:
                table.add_row("  but not yet", safe_text(role.unsupported, style="yellow"))
            console.print(table)
        console.print(Text("\nSettings", style="bold cyan"))
        console.print(settings_table(self.settings, width=console.width))
        if self.advice:
            console.print(Text("\nWorth a second look", style="bold cyan"))
            table = Table.grid(padding=(0, 1))
            for text in self.advice:
                table.add_row("  -", safe_text(text, style="yellow"))
            console.print(table)


def settings_table(settings: Sequence[AppliedSetting], *, width: int) -> Table:
    """Return a table of settings, with what each means where there is room for that."""
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415 - only this draws
    from rich.table import Table  # noqa: PLC0415 - likewise

    table = Table(box=SIMPLE_HEAD, show_edge=False)
    titles = ("name", "for", "value", "said by")
    for title in titles:
        table.add_column(title, no_wrap=title != "said by", overflow="fold")
    rows = [(one.name, one.roles, one.value, one.origin) for one in settings]
    columns = zip(titles, *rows, strict=True)
    rest = width - sum(max(map(len, column)) + COLUMN_GAP for column in columns)
    has_meaning = rest >= MEANING_WIDTH_MIN
    if has_meaning:
        table.add_column("meaning", style="dim")
    for one, (name, roles, value, origin) in zip(settings, rows, strict=True):
        style = "" if origin == "default" else "bold"
        cells = (safe_text(name), roles, safe_text(value, style), safe_text(origin, style))
        table.add_row(*cells, *([one.meaning] if has_meaning else []))
    return table
