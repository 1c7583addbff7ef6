"""Progress on stderr: a bar on a terminal, a line now and then elsewhere; and other lines that do
not spoil it.
"""

from __future__ import annotations

import shutil
import sys
import time
from typing import Callable, ClassVar, Optional

BAR_COLUMNS = 30
TERMINAL_SECONDS, FILE_SECONDS = 0.2, 10.0  # between two looks


def readable(nbytes: float) -> str:
    """A number of bytes for people."""
    for unit in ("kB", "MB", "GB"):
        if nbytes < 1000:
            break
        nbytes /= 1000
        if nbytes < 1000 or unit == "GB":
            return f"{nbytes:.1f} {unit}"
    return f"{nbytes:.0f} bytes"


def counted(n: float) -> str:
    return f"{n:,.0f}"


class Line:
    """A line that changes: over itself on a terminal, elsewhere a new one now and then. One is
    shown at a time.
    """

    shown: ClassVar[Optional[Line]] = None  # the one that is the last line of the terminal

    def __init__(self, terminal_seconds: float = TERMINAL_SECONDS):
        self.terminal = sys.stderr.isatty()
        self.seconds = terminal_seconds if self.terminal else FILE_SECONDS
        self.start = time.monotonic()
        self.next = self.start + (0 if self.terminal else FILE_SECONDS)
        self.text = ""

    def due(self) -> bool:
        return time.monotonic() >= self.next

    def put(self, text: str, last: bool = False) -> None:
        """Shows the text now. With last, it stays."""
        self.next = time.monotonic() + self.seconds
        self.text = (
            text[: max(shutil.get_terminal_size().columns - 1, 1)] if self.terminal else text
        )
        try:
            if not self.terminal:
                print(self.text, file=sys.stderr, flush=True)
                return
            Line.shown = self
            print(f"\r{self.text}\x1b[K", end="", file=sys.stderr, flush=True)
        except OSError:
            pass
        if last:
            end()


class Progress(Line):
    """What has been done of a total."""

    def __init__(
        self, what: str, total: int, unit: Callable[[float], str] = counted, nbefore: int = 0
    ):
        super().__init__()
        self.what, self.total, self.unit, self.nbefore = what, max(total, 1), unit, nbefore

    def show(self, n: int, last: bool = False) -> None:
        """n is done. With last, all is, and the bar stays as it is then."""
        if not self.due() and not last:
            return
        share = 1.0 if last else min(n / self.total, 1)
        rate = (n - self.nbefore) / max(time.monotonic() - self.start, 0.001)
        left = "" if last or rate <= 0 else f", {max(self.total - n, 0) / rate:.0f} s left"
        bar = ("#" * round(share * BAR_COLUMNS)).ljust(BAR_COLUMNS, ".")
        text = f"{self.what} {self.unit(n)} ({share:.0%}), {self.unit(rate)}/s{left}"
        self.put(f"[{bar}] {text}" if self.terminal else text, last)


def say(text: str) -> None:
    """A line on stderr; a bar moves down and goes on. If nobody reads stderr any more, that is no
    reason to stop.
    """
    try:
        if Line.shown:
            print(f"\r\x1b[K{text}\n{Line.shown.text}", end="", file=sys.stderr, flush=True)
        else:
            print(text, file=sys.stderr, flush=True)
    except OSError:
        pass


def end() -> None:
    """The bar is done with: it stays where it is, and what comes next begins a line."""
    if Line.shown:
        Line.shown = None
        try:
            print(file=sys.stderr, flush=True)
        except OSError:
            pass
