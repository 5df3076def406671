"""Response channels: answers that go only to the client that asked.

A client adds a subscription for responses, and a publication for requests that names it. The SETUPs
of the requests ask for a response, so the server may add a publication that names the image of the
requests. With its status messages the server's driver announces to the client's driver which
session will answer, until the client's receiver is there.

Source: Aeron `aeron_driver_conductor_find_response_publication_image`,
`aeron_driver_conductor_validate_response_subscription`, `..._on_response_connected`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from aeron_async.errors import ErrorCode, RegistrationError
from aeron_async.protocol.channel_uri import PROTOTYPE_CORRELATION_ID

if TYPE_CHECKING:
    from aeron_async.driver.core.network_publication import NetworkPublication
    from aeron_async.driver.core.publication_image import PublicationImage
    from aeron_async.driver.core.stream_params import PublicationParams
    from aeron_async.driver.receiver import Receiver
    from aeron_async.driver.subscriptions import Subscriptions

__all__ = ["Responses"]


@attrs.frozen(eq=False)
class ResponseWatch:
    """Notices when the receiver of a response comes, or falls silent."""

    responses: Responses
    publication: NetworkPublication

    def on_window_changed(self) -> None:
        """Let the announcement follow the connection."""
        self.responses.on_publication_changed(self.publication)


class Responses:
    """Which publications of one driver answer which images.

    Args:
        subscriptions: The images, and the subscriptions for responses.
        receiver: Polls the images.
    """

    def __init__(self, subscriptions: Subscriptions, receiver: Receiver) -> None:
        self._subscriptions = subscriptions
        self._receiver = receiver
        # For each response publication: the image it answers, and whether it is being announced.
        self._answered: dict[NetworkPublication, tuple[PublicationImage, bool]] = {}

    def check(self, params: PublicationParams) -> None:
        """Refuse a response to no image, or a request whose responses no subscription receives.

        Raises:
            RegistrationError: INVALID_CHANNEL; the correlation id matches nothing.
        """
        correlation_id = params.response_correlation_id
        if params.is_response:
            if correlation_id != PROTOTYPE_CORRELATION_ID:
                self._image(correlation_id)
        elif params.is_response_requested and not self._subscriptions.is_for_responses(
            correlation_id
        ):
            message = (
                f"unable to find response subscription {correlation_id}: "
                "response-correlation-id is the registration_id of a subscription with "
                "control-mode=response"
            )
            raise RegistrationError(message, code=ErrorCode.INVALID_CHANNEL)

    def host_of(self, params: PublicationParams) -> str | None:
        """Return the host that sends the requests which a publication answers, if it is known.

        Raises:
            RegistrationError: INVALID_CHANNEL; the publication answers an image that has ended.
        """
        if params.response_correlation_id == PROTOTYPE_CORRELATION_ID:
            return None
        return self._image(params.response_correlation_id).source[0]

    def on_publication_added(self, publication: NetworkPublication) -> None:
        """Announce to the source of the requests which session answers."""
        params = publication.params
        if params.is_response and params.response_correlation_id != PROTOTYPE_CORRELATION_ID:
            image = self._image(params.response_correlation_id)
            self._tell(publication, image, is_told=True)
            publication.window_listeners.append(ResponseWatch(self, publication))

    def on_publication_changed(self, publication: NetworkPublication) -> None:
        """Stop the announcement once the receiver is there, and resume it if that is lost.

        Differs: Aeron never resumes it. Here a receiver that times out without a goodbye gets the
        announcement until it is back, so a session that was bound by mistake is corrected.
        """
        if publication not in self._answered:
            return
        image, is_told = self._answered[publication]
        is_missing = not (publication.has_receivers or publication.has_unicast_eos)
        if is_told is not is_missing:
            self._tell(publication, image, is_told=is_missing)

    def on_publication_done(self, publication: NetworkPublication) -> None:
        """Stop the announcement."""
        if publication in self._answered:
            self._tell(publication, self._answered[publication][0], is_told=False)
            del self._answered[publication]

    def _tell(
        self, publication: NetworkPublication, image: PublicationImage, *, is_told: bool
    ) -> None:
        self._answered[publication] = image, is_told
        told = (
            each.session_id
            for each, answered in reversed(self._answered.items())
            if answered == (image, True)
        )
        image.answer_with(next(told, None))
        self._receiver.on_activity_if_known(image)

    def _image(self, correlation_id: int | None) -> PublicationImage:
        if correlation_id is None:
            message = (
                "control-mode=response was specified, but no response-correlation-id set: give the "
                "correlation_id of the image whose requests are answered"
            )
            raise RegistrationError(message, code=ErrorCode.INVALID_CHANNEL)
        image = self._subscriptions.images.find(correlation_id)
        if image is None or not image.is_response_requested:
            reason = "not found" if image is None else "did not request a response channel"
            message = (
                f"image.correlationId={correlation_id} {reason}: response-correlation-id names an "
                "image whose publication has a response-correlation-id of its own"
            )
            raise RegistrationError(message, code=ErrorCode.INVALID_CHANNEL)
        return image
