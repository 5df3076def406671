"""Every target of the fuzzer: a name, and a function of bytes that must not raise.

What a parser documents is caught inside. Whatever else comes out is a finding: another exception, a
hang, memory without bound, or an assertion about what must hold afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.fuzz.archive import ARCHIVE
from tests.fuzz.logs import log
from tests.fuzz.parsers import PARSERS
from tests.fuzz.receiver import receiver
from tests.fuzz.sender import sender

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["TARGETS"]

TARGETS: Final[Mapping[str, Callable[[bytes], None]]] = {
    **PARSERS,
    **ARCHIVE,
    "log": log,
    "receiver": receiver,
    "sender": sender,
}
