"""What requests need: commands as HTTP and websockets bring them, and who carries them out."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import BaseModel, Field

from aeron_async.errors import CallFailedError, Status
from examples.exchange.matching import PRICE_MOST, QUANTITY_MOST
from examples.exchange.messages import ACK, CancelOrder, NewOrder, encode_command

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aeron_async.errors import RpcError
    from examples.exchange.desk import Desk
    from examples.exchange.messages import Command

__all__ = [
    "Account",
    "CancelBody",
    "ClientOrderId",
    "OrderBody",
    "Services",
    "is_refused",
    "refusal_of",
]

REFUSALS: Final = {Status.INVALID_ARGUMENT, Status.RESOURCE_EXHAUSTED}
"""What the engine answers before it takes a command; with others it may have recorded it."""
SAFE_INTEGER: Final = 2**53 - 1
"""The greatest integer that JavaScript has exactly."""

Account = Annotated[str, Field(pattern=r"^[a-z0-9-]{1,16}$")]
ClientOrderId = Annotated[int, Field(ge=1, le=SAFE_INTEGER)]
Symbol = Annotated[str, Field(pattern=r"^[A-Z]{1,8}$")]


class OrderBody(BaseModel):
    """An order, as HTTP and websockets bring it."""

    type: Literal["order"] = "order"
    account: Account
    client_order_id: ClientOrderId
    symbol: Symbol
    side: Literal["BUY", "SELL"]
    kind: Literal["LIMIT", "MARKET"] = "LIMIT"
    price: Annotated[int, Field(ge=0, le=PRICE_MOST)] = 0
    quantity: Annotated[int, Field(ge=1, le=QUANTITY_MOST)]

    def command(self) -> Command:
        """Return the command; the engine sets its time."""
        return NewOrder(
            self.account,
            self.client_order_id,
            0,
            self.symbol,
            self.side,
            self.kind,
            self.price,
            self.quantity,
        )


class CancelBody(BaseModel):
    """The wish to cancel an order, as websockets bring it."""

    type: Literal["cancel"]
    account: Account
    client_order_id: ClientOrderId
    order_id: ClientOrderId

    def command(self) -> Command:
        """Return the command; the engine sets its time."""
        return CancelOrder(self.account, self.client_order_id, 0, self.order_id)


class Services:
    """What requests need: the desk, the way to the engine, and the metrics.

    Args:
        desk: What all browsers share.
        submit: Brings an encoded command to the engine, and returns its encoded answer.
        metrics: Returns the page of metrics.
    """

    def __init__(
        self,
        desk: Desk,
        submit: Callable[[bytes], Awaitable[bytes]],
        metrics: Callable[[], Awaitable[str]],
    ) -> None:
        self.desk = desk
        self.metrics = metrics
        self.browser_count = 0
        self._submit = submit

    async def carry_out(self, command: Command) -> dict[str, Any]:
        """Let the engine carry out a command; return its answer, with the time that took.

        Raises:
            RpcError: There is no answer.
        """
        began_ns = now_ns()
        ack = ACK.decode(await self._submit(encode_command(command)))
        return {"type": "ack", "call_ns": now_ns() - began_ns} | ack._asdict()


def now_ns() -> int:
    """Return the time of the event loop in nanoseconds."""
    return int(asyncio.get_running_loop().time() * 1e9)


def is_refused(error: RpcError) -> bool:
    """Return whether a command was not done, and will not be; without that, nobody knows."""
    return isinstance(error, CallFailedError) and (error.is_never_begun or error.status in REFUSALS)


def refusal_of(error: RpcError) -> str:
    """Return why there is no answer, and what the sender may do."""
    if is_refused(error):
        return f"the engine refused it: {error}"
    return f"{error}. Send it again with the same client_order_id: it will not be done twice"
