"""Command `aeron-async explain`: what a channel means, without opening anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

import attrs

from aeron_async.cli.explain_roles import RoleExplanation, explain_publication, explain_subscription
from aeron_async.cli.explain_settings import (
    DEFAULT,
    AppliedSetting,
    applied_settings,
    is_for_group,
    keys_without_effect,
)
from aeron_async.cli.options import Flag  # noqa: TC001 - cyclopts reads annotations at run time
from aeron_async.cli.output import make_console, print_json, safe_text
from aeron_async.cli.receive_room import DOUBLED, capacity, datagram_count, wanted_rcvbuf_length
from aeron_async.cli.runner import ExitCode
from aeron_async.driver.core.context import DriverContext
from aeron_async.driver.media.sockets import wished_rcvbuf_length
from aeron_async.protocol.channel_uri import ChannelUri, Media
from aeron_async.protocol.parameters import Role
from aeron_async.protocol.units import format_size

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.table import Table

    from aeron_async.protocol.address import Address, InterfaceSpec

__all__ = [
    "advice",
    "explain",
]

PRIVILEGED_PORTS: Final = range(1, 1024)
EPHEMERAL_PORTS: Final = range(32_768, 61_000)
# Payload of an Ethernet frame of 1500 bytes behind the headers of IPv4 and UDP.
ETHERNET_PAYLOAD_LENGTH: Final = 1_472
ONE_SIDED_KEYS: Final = {"fc": "publications", "gtag": "subscriptions"}
"""Parameters of a group that apply to one side only, and are accepted in the channel of both."""
LARGE_TERM_LENGTH: Final = 128 * 1024 * 1024


def advice(uri: ChannelUri, context: DriverContext) -> Iterator[str]:
    """Yield a sentence for each questionable point of a channel."""
    if uri.endpoint is not None and not uri.is_spy:
        yield from endpoint_advice(uri.endpoint)
    if uri.media is Media.UDP:
        yield from interface_advice(uri.interface)
        yield from length_advice(uri, context)
    if uri.is_reliable is False:
        yield "reliable=false: what is lost is skipped and never asked for again"
    if uri.linger_timeout_ns == 0:
        yield "linger=0ns: a closed publication repairs nothing that is still missing"
    if isinstance(uri.session_id, int):
        yield (
            f"session-id={uri.session_id}: a second publication with it on this channel and stream "
            "is refused, and a subscription hears no other session"
        )
    for key, reason in keys_without_effect(uri):
        yield f"{key} has no effect: {reason}"
    if is_for_group(uri):
        for key, roles in ONE_SIDED_KEYS.items():
            if key in uri.parameters:
                yield f"{key} counts for {roles} only: the other side ignores it, as Aeron's does"


def endpoint_advice(endpoint: Address) -> Iterator[str]:
    """Yield advice about the endpoint."""
    ip, port = endpoint.ip, endpoint.port
    if ip is not None and ip.is_unspecified:
        yield (
            f"endpoint={endpoint} is the wildcard address: a subscription listens on every address "
            "of its machine; a publication reaches its own machine at most: name the subscriber's"
        )
    if is_this_machine(endpoint):
        yield f"endpoint={endpoint} is this machine: no other can send or listen there"
    if endpoint.host == "localhost":
        yield (
            f"localhost:{port} and 127.0.0.1:{port} are two channels that need one port: write it "
            "one way everywhere"
        )
    if port == 0:
        yield (
            "port 0: the system chooses the port when the subscription is added; read it from "
            "subscription.local_address"
        )
    if port in PRIVILEGED_PORTS:
        yield f"port {port} is below 1024: binding it needs privileges"
    if port in EPHEMERAL_PORTS:
        yield (
            f"port {port} is one of those that Linux hands out by itself "
            f"({EPHEMERAL_PORTS.start} to {EPHEMERAL_PORTS.stop - 1}): another program may have it"
        )


def interface_advice(interface: InterfaceSpec | None) -> Iterator[str]:
    """Yield advice about the local interface."""
    if interface is None or interface.host is None or interface.ip is not None:
        return
    host = interface.host
    if host != "localhost" and "." not in host:
        yield (
            f"interface={interface} is looked up as the name of a host; the name of an interface "
            f"stands in braces: interface={{{host}}}"
        )


def length_advice(uri: ChannelUri, context: DriverContext) -> Iterator[str]:
    """Yield advice about lengths that must fit each other."""
    mtu = uri.mtu_length or context.mtu_length
    term = uri.term_length or context.term_buffer_length
    window = uri.receiver_window_length or context.initial_window_length
    receive_buffer = uri.socket_rcvbuf_length
    if receive_buffer is None:
        receive_buffer = context.socket_rcvbuf_length
    is_local = uri.endpoint is not None and is_this_machine(uri.endpoint)
    if mtu > ETHERNET_PAYLOAD_LENGTH and not is_local:
        yield (
            f"mtu={format_size(mtu)} exceeds {ETHERNET_PAYLOAD_LENGTH}, what Ethernet usually "
            "carries: IP splits each datagram, and one lost part loses it all"
        )
    if uri.receiver_window_length and window > term // 2:
        yield (
            f"rcv-wnd={format_size(window)} exceeds half of term-length={format_size(term)}: a "
            f"receiver grants {format_size(term // 2)} only"
        )
    if receive_buffer and window > receive_buffer:
        yield (
            f"rcv-wnd={format_size(window)} exceeds so-rcvbuf={format_size(receive_buffer)}: the "
            "system drops what it cannot keep; raise so-rcvbuf, and net.core.rmem_max with it"
        )
    elif receive_buffer and not wished_rcvbuf_length(uri, context):
        yield from room_advice(min(window, term // 2), receive_buffer, mtu)
    if mtu > window:
        yield (
            f"mtu={format_size(mtu)} exceeds rcv-wnd={format_size(window)}: no receiver with that "
            "window joins the stream"
        )
    if term >= LARGE_TERM_LENGTH:
        yield (
            f"term-length={format_size(term)}: three terms may take {format_size(3 * term)} of "
            "memory at the publisher, and at each subscriber"
        )


def room_advice(window: int, receive_buffer: int, mtu: int) -> Iterator[str]:
    """Yield advice about a receive buffer that holds less than a window of full datagrams."""
    held, invited = capacity(DOUBLED * receive_buffer, mtu), datagram_count(window, mtu)
    if held < invited:
        wanted = format_size(wanted_rcvbuf_length(window, mtu))
        yield (
            f"so-rcvbuf={format_size(receive_buffer)} holds {held} datagrams of "
            f"mtu={format_size(mtu)}, as Linux counts them, and rcv-wnd={format_size(window)} "
            f"invites {invited}: set so-rcvbuf={wanted}, and net.core.rmem_max to as much"
        )


def is_this_machine(endpoint: Address) -> bool:
    """Return whether an address can only be one of this machine."""
    return endpoint.host == "localhost" or (endpoint.ip is not None and endpoint.ip.is_loopback)


COLUMN_GAP: Final = 3
# Narrower columns break every meaning into many lines; JSON always has it.
MEANING_WIDTH_MIN: Final = 24


def explain(channel: str, /, *more: str, settings: Flag = False, json: Flag = False) -> int:
    """Say what a channel URI would bind, connect, join and send, and by which settings.

    Args:
        channel: Such as "aeron:udp?endpoint=127.0.0.1:20121"; mind the quotes.
        more: Further channels, explained one after the other.
        settings: Show all settings that apply, not only those that differ from their defaults.
        json: Explain as JSON, a line for each channel, with all settings.
    """
    explanations = [Explanation.of(text) for text in (channel, *more)]
    for number, explanation in enumerate(explanations):
        if json:
            print_json(explanation.to_json())
        else:
            explanation.print(is_first=number == 0, has_defaults=settings)
    is_possible = all(explanation.is_possible for explanation in explanations)
    return ExitCode.SUCCESS if is_possible else ExitCode.BAD_USAGE


@attrs.frozen(kw_only=True)
class Explanation:
    """Explanation of a channel."""

    channel: str
    publication: RoleExplanation
    subscription: RoleExplanation
    settings: tuple[AppliedSetting, ...]
    advice: tuple[str, ...]
    is_possible: bool

    @classmethod
    def of(cls, text: str) -> Self:
        """Explain a channel by the settings of this environment.

        Raises:
            ChannelUriError: The text is no channel.
            ConfigurationError: The environment holds an invalid setting.
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
        """Return the explanation as a JSON object."""
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

    def print(self, *, is_first: bool, has_defaults: bool) -> None:
        """Print the explanation as text and tables: first what needs a second look."""
        from rich.table import Table  # noqa: PLC0415 - only this draws
        from rich.text import Text  # noqa: PLC0415 - as above

        console = make_console()
        if not is_first:
            console.print()
        console.print(safe_text(self.channel, style="bold"))
        if self.advice:
            console.print(Text("\nWorth a second look", style="bold cyan"))
            console.print(advice_table(self.advice))
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
        shown = [each for each in self.settings if has_defaults or each.origin != DEFAULT]
        if shown:
            console.print(settings_table(shown, width=console.width))
        if len(shown) < len(self.settings):
            default_count = len(self.settings) - len(shown)
            console.print(f"  at their defaults: {default_count}; --settings shows them")


def advice_table(advice: Sequence[str]) -> Table:
    """Return the remarks as a list."""
    from rich.table import Table  # noqa: PLC0415 - only this draws

    table = Table.grid(padding=(0, 1))
    for text in advice:
        table.add_row("  -", safe_text(text, style="yellow"))
    return table


def settings_table(settings: Sequence[AppliedSetting], *, width: int) -> Table:
    """Return a table of settings, with their meanings if there is room."""
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415 - only this draws
    from rich.table import Table  # noqa: PLC0415 - as above

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
        style = "" if origin == DEFAULT else "bold"
        cells = (safe_text(name), roles, safe_text(value, style), safe_text(origin, style))
        table.add_row(*cells, *([one.meaning] if has_meaning else []))
    return table
