"""Progress on stderr: a bar on a terminal, a line now and then elsewhere; and other lines that do not spoil it."""

from __future__ import annotations

import shutil
import sys
import time
from typing import Callable, Optional

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


class Progress:
    """What has been done of a total. At most one is shown at a time."""

    shown: Optional[Progress] = None  # the one whose bar is the last line of the terminal

    def __init__(self, what: str, total: int, unit: Callable[[float], str] = counted, nbefore: int = 0):
        self.what, self.total, self.unit, self.nbefore = what, max(total, 1), unit, nbefore
        self.terminal = sys.stderr.isatty()
        self.start = time.monotonic()
        self.next = self.start + (0 if self.terminal else FILE_SECONDS)
        self.line = ""

    def show(self, n: int, last: bool = False) -> None:
        """n is done. With last, all is, and the bar stays as it is then."""
        now = time.monotonic()
        if now < self.next and not last:
            return
        self.next = now + (TERMINAL_SECONDS if self.terminal else FILE_SECONDS)
        share = 1.0 if last else min(n / self.total, 1)
        rate = (n - self.nbefore) / max(now - self.start, 0.001)
        left = "" if last or rate <= 0 else f", {max(self.total - n, 0) / rate:.0f} s left"
        text = f"{self.what} {self.unit(n)} ({share:.0%}), {self.unit(rate)}/s{left}"
        if not self.terminal:
            print(text, file=sys.stderr, flush=True)
            return
        bar = ("#" * round(share * BAR_COLUMNS)).ljust(BAR_COLUMNS, ".")
        columns = shutil.get_terminal_size().columns
        self.line = f"[{bar}] {text}"[: max(columns - 1, 1)]
        Progress.shown = self
        print(f"\r{self.line}\x1b[K", end="", file=sys.stderr, flush=True)
        if last:
            end()


def say(text: str) -> None:
    """A line on stderr; a bar moves down and goes on. If nobody reads stderr any more, that is no reason to stop."""
    try:
        if Progress.shown:
            print(f"\r\x1b[K{text}\n{Progress.shown.line}", end="", file=sys.stderr, flush=True)
        else:
            print(text, file=sys.stderr, flush=True)
    except OSError:
        pass


def end() -> None:
    """The bar is done with: it stays where it is, and what comes next begins a line."""
    if Progress.shown:
        Progress.shown = None
        try:
            print(file=sys.stderr, flush=True)
        except OSError:
            pass
