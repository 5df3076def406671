"""`aeron-async explain`: what a channel means, before anything is opened."""

from __future__ import annotations

import attrs

from aeron_async.cli.explain_advice import advice
from aeron_async.cli.explain_roles import (
    RoleExplanation,
    explain_publication,
    explain_subscription,
)
from aeron_async.cli.explain_settings import AppliedSetting, applied_settings
from aeron_async.cli.options import Flag  # noqa: TC001 - cyclopts reads the annotation when it runs
from aeron_async.cli.output import make_console, print_json
from aeron_async.cli.runner import ExitCode
from aeron_async.driver.core.context import DriverContext
from aeron_async.protocol.channel_uri import ChannelUri
from aeron_async.protocol.parameters import Role

__all__ = ["explain"]


def explain(channel: str, /, *, json: Flag = False) -> int:
    """Say what a channel URI would bind, connect, join and send, and by which settings.

    Args:
        channel: Such as "aeron:udp?endpoint=localhost:40123"; mind the quotes.
        json: Explain as JSON.
    """
    uri = ChannelUri.parse(channel)
    context = DriverContext.from_environment()
    publication = explain_publication(uri, context)
    subscription = explain_subscription(uri, context)
    roles = {
        Role.PUBLICATION: publication,
        Role.SPY if uri.is_spy else Role.SUBSCRIPTION: subscription,
    }
    possible = frozenset(role for role, found in roles.items() if found.refusal is None)
    explanation = Explanation(
        channel=str(uri),
        publication=publication,
        subscription=subscription,
        settings=tuple(applied_settings(uri, context, possible)),
        advice=tuple(advice(uri, context)),
    )
    if json:
        print_json(explanation.to_json())
    else:
        explanation.print()
    return ExitCode.SUCCESS if possible else ExitCode.BAD_USAGE


@attrs.frozen(kw_only=True)
class Explanation:
    """Everything there is to say about a channel."""

    channel: str
    publication: RoleExplanation
    subscription: RoleExplanation
    settings: tuple[AppliedSetting, ...]
    advice: tuple[str, ...]

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

    def print(self) -> None:
        """Print the explanation for people."""
        from rich.box import SIMPLE_HEAD  # noqa: PLC0415 - only this draws
        from rich.table import Table  # noqa: PLC0415 - likewise
        from rich.text import Text  # noqa: PLC0415 - likewise

        console = make_console()
        console.print(Text(self.channel, style="bold"))
        for title, role in (
            ("As a publication", self.publication),
            ("As a subscription", self.subscription),
        ):
            console.print(Text(f"\n{title}", style="bold cyan"))
            table = Table.grid(padding=(0, 2))
            table.add_column(min_width=10, style="dim")
            table.add_column()
            for what, text in role.facts:
                table.add_row(f"  {what}", Text(text))
            if role.refusal is not None:
                table.add_row("  refused", Text(role.refusal, style="red"))
            if role.unsupported is not None:
                table.add_row("  but not yet", Text(role.unsupported, style="yellow"))
            console.print(table)
        console.print(Text("\nSettings", style="bold cyan"))
        table = Table(box=SIMPLE_HEAD)
        for name in ("name", "for", "value", "said by"):
            table.add_column(name, no_wrap=True)
        table.add_column("meaning", style="dim", no_wrap=True, overflow="ellipsis")
        for setting in self.settings:
            style = "" if setting.origin == "default" else "bold"
            value, origin = Text(setting.value, style=style), Text(setting.origin, style=style)
            table.add_row(setting.name, setting.roles, value, origin, setting.meaning)
        console.print(table)
        if self.advice:
            console.print(Text("Worth a second look", style="bold cyan"))
            table = Table.grid(padding=(0, 1))
            for text in self.advice:
                table.add_row("  -", Text(text, style="yellow"))
            console.print(table)
