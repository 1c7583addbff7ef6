"""A terminal as a screen: a picture that is drawn over the last one, and single keys. It is left as
it was found.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import termios
import time
import tty
import unicodedata
from types import FrameType
from typing import Any, List, Optional, Sequence, Tuple

# The other screen, no cursor, no wrapping; and back.
ENTER, LEAVE = "\033[?1049h\033[?25l\033[?7l", "\033[?7h\033[?25h\033[?1049l"

RED, YELLOW, BOLD, PLAIN = "\033[31;1m", "\033[33m", "\033[1m", "\033[0m"

POLL_SECONDS = 0.25  # how soon a change of the terminal's size is noticed

Line = Tuple[str, str]  # a colour or "", and the text


def columns_of(character: str) -> int:
    """Columns that a character takes on a terminal."""
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def fit(text: str, columns: int, pad: bool = False) -> str:
    """The text, cut to so many columns; with pad, filled up to them."""
    used = 0
    kept: List[str] = []
    for character in text:
        width = columns_of(character)
        if used + width > columns:
            while kept and used + 1 > columns:
                used -= columns_of(kept.pop())
            if columns > 0:
                kept.append("…")
                used += 1
            break
        kept.append(character)
        used += width
    return "".join(kept) + " " * (columns - used if pad else 0)


def colours_wanted() -> bool:
    return (
        sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    )


def painted(lines: Sequence[Line], columns: Optional[int]) -> List[str]:
    """Lines as they go to a terminal; without columns, as long as they are."""
    colours = colours_wanted()
    texts = [text if columns is None else fit(text, columns) for _, text in lines]
    return [
        colour + text + PLAIN if colour and colours else text
        for (colour, _), text in zip(lines, texts)
    ]


class Screen:
    """The terminal of stdout, with the keys of stdin if that is one too. Use it in a with
    statement.
    """

    def __init__(self) -> None:
        self.keyboard = sys.stdin.fileno() if sys.stdin and sys.stdin.isatty() else None
        self.saved: Any = None
        self.size = self.look()

    @staticmethod
    def look() -> Tuple[int, int]:
        """Columns and lines, as they are now."""
        size = shutil.get_terminal_size((80, 24))
        return size.columns, size.lines

    def __enter__(self) -> Screen:
        signal.signal(signal.SIGTERM, self.terminated)
        signal.signal(signal.SIGTSTP, self.stopped)
        self.enter()
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def enter(self) -> None:
        if self.keyboard is not None:
            self.saved = termios.tcgetattr(self.keyboard)
            tty.setcbreak(self.keyboard)
        self.write(ENTER)

    def leave(self) -> None:
        self.write(LEAVE)
        if self.saved is not None and self.keyboard is not None:
            termios.tcsetattr(self.keyboard, termios.TCSADRAIN, self.saved)

    @staticmethod
    def terminated(number: int, _: Optional[FrameType]) -> None:
        sys.exit(128 + number)

    def stopped(self, number: int, _: Optional[FrameType]) -> None:
        """Ctrl-Z: the shell gets its terminal back as it was, and we get ours when we go on."""
        self.leave()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        signal.signal(number, self.stopped)
        self.enter()
        self.size = (0, 0)  # so that it is drawn again

    @staticmethod
    def write(text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    def draw(self, lines: Sequence[Line]) -> None:
        """Draws over the last picture rather than clearing first, which would flicker. What is too
        much is cut.
        """
        self.size = self.look()
        columns, height = self.size
        # One column stays free: at the last one, erasing the rest of the line would erase the
        # character there.
        rows = painted(lines[:height], columns - 1)
        self.write("\033[H" + "\n".join(row + "\033[K" for row in rows) + "\033[J")

    def key(self, seconds: float) -> Optional[str]:
        """The next key, "resize" if the size has changed, or None after so many seconds."""
        end = time.monotonic() + seconds
        while True:
            if self.look() != self.size:
                return "resize"
            left = max(min(end - time.monotonic(), POLL_SECONDS), 0)
            if self.keyboard is None:
                time.sleep(left)
            elif select.select([self.keyboard], [], [], left)[0]:
                return (
                    os.read(self.keyboard, 1).decode("ascii", "replace") or "q"
                )  # nothing: the terminal is gone
            if time.monotonic() >= end:
                return None
