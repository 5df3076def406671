"""The channels of a service: one URI for both ends, and how requests and answers travel.

    aeron:udp?endpoint=HOST:PORT|control=HOST:PORT             response channels: a stream back to
                                                               each client
    aeron:udp?endpoint=...|control=...|control-mode=dynamic    one stream back to all clients (MDC),
                                                               who leave out what is for others
    aeron:ipc                                                  response channels in one driver

Clients send requests to `endpoint`; servers send answers from `control`. Other parameters, such as
`term-length`, are for the publications of both ends.
"""

from __future__ import annotations

from typing import Any, Final, final

from aeron_async.errors import ConfigurationError
from aeron_async.protocol.channel_uri import ChannelUri, parse_channel
from aeron_async.protocol.channel_uri_values import ControlMode, Media
from aeron_async.rpc.envelope import EXTENSIONS_MAX, HEAD_LENGTH
from aeron_async.rpc.flows import CHUNK

__all__ = ["REQUEST_STREAM_ID", "Wiring"]

REQUEST_STREAM_ID: Final = 1_001
"""The stream of requests by default; answers are on the next one."""
TERM_LENGTH: Final = 1 << 20
"""Of a stream of calls by default: messages are at most an eighth of it."""
SERVER_ALIAS: Final = "rpc-server"
"""The alias of a server's channels; that of the URI goes behind it, as `rpc-server/mine`.

A server may have no client for as long as it likes: readiness and alerts know it by this name.
"""
ANY_HOST: Final = "0.0.0.0:0"
ANY_HOST_6: Final = "[::]:0"


@final
class Wiring:
    """What each end of a service opens.

    Args:
        channel: The URI of the service.
        stream_id: Of the requests.
        response_stream_id: Of the answers; None for the next one.

    Attributes:
        name: The URI as given.
        is_shared: Whether all clients receive the answers to each of them.
        requests: The channel on which a server listens.
        chunk: Most bytes of a payload in one message.

    Raises:
        ChannelUriError: The channel cannot be parsed.
        ConfigurationError: It lacks an address, or is one that calls cannot use.
    """

    def __init__(
        self, channel: str | ChannelUri, stream_id: int, response_stream_id: int | None
    ) -> None:
        uri = parse_channel(channel)
        if uri.is_spy or uri.control_mode not in {None, ControlMode.DYNAMIC, ControlMode.RESPONSE}:
            message = f"{uri}: calls use control-mode=response (the default) or dynamic, and no spy"
            raise ConfigurationError(message)
        is_udp = uri.media is Media.UDP
        if is_udp and (uri.endpoint is None or uri.control is None):
            message = (
                f"{uri}: give endpoint=host:port, where requests go, and control=host:port, where "
                f"answers come from"
            )
            raise ConfigurationError(message)
        self.is_shared: bool = uri.control_mode is ControlMode.DYNAMIC
        if self.is_shared and not is_udp:
            message = f"{uri}: control-mode=dynamic needs aeron:udp"
            raise ConfigurationError(message)
        self.name = str(channel)
        self.stream_id = stream_id
        self.response_stream_id = (
            stream_id + 1 if response_stream_id is None else response_stream_id
        )
        self._uri = uri
        self._is_udp = is_udp
        bare = uri.replace(control=None, control_mode=None)
        alias = f"{SERVER_ALIAS}/{uri.alias}" if uri.alias else SERVER_ALIAS
        self.requests: ChannelUri = bare.replace(term_length=None, alias=alias)
        self._term_length = uri.term_length or TERM_LENGTH
        self.chunk: int = min(CHUNK, self._term_length // 8 - HEAD_LENGTH - EXTENSIONS_MAX)
        self._bare = bare.replace(term_length=self._term_length)
        self._answers = self._bare.replace(alias=alias)

    def responses(self) -> ChannelUri:
        """Return the channel on which a client listens for answers."""
        if not self._is_udp:
            return self._receiving(control_mode=ControlMode.RESPONSE)
        assert self._uri.control is not None
        any_host = ANY_HOST_6 if ":" in self._uri.control.host else ANY_HOST
        mode = ControlMode.DYNAMIC if self.is_shared else ControlMode.RESPONSE
        return self._receiving(endpoint=any_host, control=self._uri.control, control_mode=mode)

    def request_publication(self, response_subscription_id: int) -> ChannelUri:
        """Return the channel to which a client sends."""
        if self.is_shared:
            return self._bare
        return self._bare.replace(response_correlation_id=response_subscription_id)

    def response_publication(self, request_correlation_id: int) -> ChannelUri:
        """Return the channel on which a server answers the client of an image."""
        if self.is_shared:
            return self._answers.replace(
                endpoint=None, control=self._uri.control, control_mode=ControlMode.DYNAMIC
            )
        return self._answers.replace(
            endpoint=None,
            control=self._uri.control,
            control_mode=ControlMode.RESPONSE,
            response_correlation_id=request_correlation_id,
        )

    def _receiving(self, **parameters: object) -> ChannelUri:
        given: dict[str, Any] = {"endpoint": None, "term_length": None, **parameters}
        return self._bare.replace(**given)
