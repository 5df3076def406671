"""What a command writes to a terminal or a pipe, and whether any of it does harm."""

from __future__ import annotations

import os
import re
import threading

__all__ = ["Output", "harmless"]


class Output:
    """Standard output and error as files, each the one end of a terminal or a pipe."""

    def __init__(self, *, is_terminal: bool) -> None:
        self._ends = [os.openpty() if is_terminal else os.pipe() for _ in range(2)]
        self._taken = [bytearray(), bytearray()]
        self._readers = [
            threading.Thread(target=self._read, args=(reading, taken))
            for (reading, _), taken in zip(self._ends, self._taken, strict=True)
        ]
        self.files = [os.fdopen(writing, "w", encoding="utf-8") for _, writing in self._ends]
        for each in self._readers:
            each.start()

    @staticmethod
    def _read(reading: int, taken: bytearray) -> None:
        try:
            while data := os.read(reading, 65_536):
                taken += data
        except OSError:  # So ends a terminal.
            return

    def finish(self) -> tuple[str, str]:
        """Return what was written to both; bytes that are no UTF-8 are surrogates."""
        for file in self.files:
            file.close()
        for thread in self._readers:
            thread.join()
        for reading, _ in self._ends:
            os.close(reading)
        out, err = (bytes(taken).decode("utf-8", "surrogateescape") for taken in self._taken)
        return out, err


def harmless(text: str, *, is_terminal: bool) -> str:
    """Return what was printed without what rich and terminals add, after looking at the rest."""
    if is_terminal:
        text = text.replace("\r\n", "\n")
        # Colours, and how a bar that moves hides the cursor and takes back its line.
        text = re.sub(r"\x1b\[(?:[0-9;]*m|\?25[lh]|[12]?[AK])|\r(?=\x1b|\n|$)", "", text)
    assert all(each.isprintable() or each == "\n" for each in text), ascii(text[:2_000])
    assert "Traceback" not in text
    return text
