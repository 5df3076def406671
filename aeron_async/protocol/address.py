"""Socket addresses and interfaces in channel URIs, without name resolution.

Every value keeps the text as written beside its parts, because the text identifies a channel
endpoint: `localhost:40456` and `127.0.0.1:40456` are two endpoints. Only IPv6 literals, which have
many spellings, are compared by value.
"""

from __future__ import annotations

import re
from ipaddress import AddressValueError, IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final

import attrs

from aeron_async.errors import ConfigurationError

__all__ = [
    "Address",
    "InterfaceSpec",
    "IpAddress",
    "multicast_control_address",
    "usual_spelling",
]

IpAddress = IPv4Address | IPv6Address

PORT_MAX: Final = 65535
HOST_LENGTH_MAX: Final = 383
INTERFACE_NAME_LENGTH_MAX: Final = 15
IPV4_PREFIX_MAX: Final = 32
IPV6_PREFIX_MAX: Final = 128
IPV4_GROUPS: Final = IPv4Network("224.0.0.0/4")
IPV6_GROUPS: Final = IPv6Network("ff00::/8")

_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
_IPV4_LIKE: Final = re.compile(r"[0-9.]+")
_BRACKETED: Final = re.compile(r"\[([^\[\]%]*)(?:%([^\[\]%]+))?\](.*)")
_PLAIN_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,9}")


@attrs.frozen
class Address:
    """An address to send to or bind: a host and a port.

    Attributes:
        host: An IPv4 literal, an IPv6 literal in its usual spelling without brackets and scope, or
            a name to resolve.
        port: 0 to 65535; the meaning of 0 depends on the parameter.
        text: The address as written.
    """

    host: str
    port: int
    text: str

    @classmethod
    def parse(cls, text: str) -> Address:
        """Parse `host:port` or `[ipv6%scope]:port`; the scope stays in the text only.

        Raises:
            ConfigurationError: no port, a port above 65535, IPv6 without brackets, or no host.
        """
        host, rest = _split_host(text)
        if not rest:
            message = f"{text!r} has no port; write host:port, such as {_with_port(host)}"
            raise ConfigurationError(message)
        return cls(host, _parse_port(rest, text), text)

    @classmethod
    def of(cls, host: str, port: int) -> Address:
        """Return the address of a host and a port, with its text in the usual form.

        Raises:
            ConfigurationError: the host or the port is not valid.
        """
        bracketed = f"[{host}]" if ":" in host else host
        return cls.parse(f"{bracketed}:{port}")

    @property
    def identity(self) -> str:
        """The text, with an IPv6 literal in its usual spelling; its scope stays as written.

        Differs: Aeron compares the endpoint of a unicast channel as text, so that two spellings of
        one address are two endpoints, of which the second cannot be bound.
        """
        if ":" not in self.host:
            return self.text
        scope = self.scope
        return (
            f"[{self.host}]:{self.port}" if scope is None else f"[{self.host}%{scope}]:{self.port}"
        )

    @property
    def ip(self) -> IpAddress | None:
        """The literal IP address, or None if the host is a name."""
        return _literal(self.host)

    @property
    def scope(self) -> str | None:
        """The scope of an IPv6 literal, an interface name or number; usually None."""
        match = _BRACKETED.fullmatch(self.text)
        return None if match is None else match[2]

    @property
    def is_multicast(self) -> bool:
        """Whether the host is the literal address of a multicast group; a name never is."""
        return _is_multicast(self.ip)

    def __str__(self) -> str:
        return self.text


@attrs.frozen
class InterfaceSpec:
    """The local interface of a channel: by address and prefix, or by its name in braces.

    Attributes:
        host: An IP literal or a name to resolve; None for the named form.
        interface_name: Such as `eth0`; None for the form by address.
        port: Local source port of a unicast publication; with 0 the system chooses.
        prefix_length: How many leading bits of the address must match; None means all of them.
        text: The interface as written.
    """

    host: str | None
    interface_name: str | None
    port: int
    prefix_length: int | None
    text: str

    @classmethod
    def parse(cls, text: str) -> InterfaceSpec:
        """Parse `host[:port][/prefix]` or `{name}[:port]`.

        Raises:
            ConfigurationError: neither form, a port above 65535, or too long a prefix.
        """
        if text.startswith("{"):
            name, brace, rest = text[1:].partition("}")
            if not brace or not 0 < len(name) <= INTERFACE_NAME_LENGTH_MAX:
                message = (
                    f"{text!r} must hold an interface name of 1 to {INTERFACE_NAME_LENGTH_MAX} "
                    "characters in braces, such as {eth0}"
                )
                raise ConfigurationError(message)
            return cls(None, name, _parse_port(rest, text) if rest else 0, None, text)
        host_and_port, slash, prefix = text.partition("/")
        host, rest = _split_host(host_and_port)
        port = _parse_port(rest, text) if rest else 0
        prefix_length = _parse_prefix(prefix, host, text) if slash else None
        return cls(host, None, port, prefix_length, text)

    @property
    def ip(self) -> IpAddress | None:
        """The literal IP address, or None if the host is a name or the form is `{name}`."""
        return None if self.host is None else _literal(self.host)

    def __str__(self) -> str:
        return self.text


def multicast_control_address(data: Address) -> Address:
    """Return the address to which receivers of a multicast group send status messages and NAKs.

    That is the group's address with its last byte increased by one, on the same port. A last byte
    of 255 becomes 0 without a carry, as in both official drivers.

    Raises:
        ConfigurationError: not the literal address of a group, or its last byte is even.

    Source: Aeron `aeron_multicast_control_address`, `UdpChannel.getMulticastControlAddress`.
    """
    ip = data.ip
    if ip is None or not data.is_multicast:
        message = f"{data.text!r} is not the literal address of a multicast group"
        raise ConfigurationError(message)
    packed = bytearray(ip.packed)
    if packed[-1] % 2 == 0:
        message = (
            f"multicast group {data.text!r} ends in an even byte; a data address must be odd, "
            "because the even address after it carries control"
        )
        raise ConfigurationError(message)
    packed[-1] = (packed[-1] + 1) % 256
    return Address.of(str(type(ip)(bytes(packed))), data.port)


def usual_spelling(host: str) -> str:
    """Return an IPv6 literal in lower case and short form; return any other host unchanged.

    An IPv4 address within it is written in dotted form. A scope stays as it is.
    """
    if ":" not in host:
        return host
    literal, percent, scope = host.partition("%")
    ip = _ipv6(literal)
    if ip is None:
        return host
    mapped = ip.ipv4_mapped
    return f"{ip if mapped is None else f'::ffff:{mapped}'}{percent}{scope}"


def _split_host(text: str) -> tuple[str, str]:
    """Return the host, and the rest: nothing, or a colon and more."""
    if text.startswith("["):
        match = _BRACKETED.fullmatch(text)
        host = None if match is None else _ipv6(match[1])
        if match is None or host is None:
            message = f"{text!r} must hold an IPv6 literal in brackets, such as [::1]:40456"
            raise ConfigurationError(message)
        return usual_spelling(match[1]), match[3]
    host_text, colon, port = text.partition(":")
    if ":" in port:
        message = f"{text!r} has several colons; an IPv6 literal needs brackets: [::1]:40456"
        raise ConfigurationError(message)
    if _NAME.fullmatch(host_text) is None or len(host_text) > HOST_LENGTH_MAX:
        message = (
            f"{text!r} has no usable host: letters, digits, '.', '-' and '_', "
            f"at most {HOST_LENGTH_MAX} of them"
        )
        raise ConfigurationError(message)
    # Differs: the system's resolver takes 127.1 or 1234 for an address; here it counts as a
    # mistake.
    if _IPV4_LIKE.fullmatch(host_text) is not None and _literal(host_text) is None:
        message = f"{text!r} has a host of digits and dots that is not an IPv4 address"
        raise ConfigurationError(message)
    return host_text, colon + port


def _parse_port(rest: str, text: str) -> int:
    # Differs: the C driver also takes hexadecimal and octal ports; a leading zero is refused here,
    # since one official driver would read it in base 8 and the other in base 10.
    digits = rest[1:]
    if rest[0] != ":" or _PLAIN_NUMBER.fullmatch(digits) is None or int(digits) > PORT_MAX:
        message = f"{text!r} must end in a port between 0 and {PORT_MAX}, not {rest!r}"
        raise ConfigurationError(message)
    return int(digits)


def _parse_prefix(prefix: str, host: str, text: str) -> int:
    limit = IPV4_PREFIX_MAX if isinstance(_literal(host), IPv4Address) else IPV6_PREFIX_MAX
    if _PLAIN_NUMBER.fullmatch(prefix) is None or int(prefix) > limit:
        message = f"{text!r} must end in a prefix length between 0 and {limit}, not '/{prefix}'"
        raise ConfigurationError(message)
    return int(prefix)


def _literal(host: str) -> IpAddress | None:
    try:
        return IPv4Address(host)
    except AddressValueError:
        return _ipv6(host)


def _ipv6(host: str) -> IPv6Address | None:
    try:
        return IPv6Address(host)
    except AddressValueError:
        return None


def _is_multicast(ip: IpAddress | None) -> bool:
    # Not `ip.is_multicast`: since Python 3.13 that looks inside IPv4-mapped addresses; Aeron does
    # not.
    if ip is None:
        return False
    return ip in IPV4_GROUPS or ip in IPV6_GROUPS


def _with_port(host: str) -> str:
    return f"[{host}]:40456" if ":" in host else f"{host}:40456"
