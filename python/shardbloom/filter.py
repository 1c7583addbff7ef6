"""A filter as an object.

What it does that plain BF.ADD does not: a filter that has vanished comes back as it was asked for.
DEL, expiry, FLUSHALL or a restart without persistence may remove a filter while programs use it,
and BF.ADD on a missing key makes one for 100 items with an error rate of 1%. Programs that go on
would lose one new item of a hundred, and never know.

How it notices: it adds with `BF.INSERT key NOCREATE ITEMS …`, which costs the same as BF.MADD and
answers "not found" if the filter is not there. Then, and only then, `BF.INSERT key CAPACITY n ERROR
e ITEMS …` creates it and adds. Nothing can come between unnoticed: NOCREATE never creates, so
whoever is first to meet the gap sees it and reports it. (Asking EXISTS beside every add would miss
a filter that is deleted between the two, and needs another command each time.) If several programs
meet the gap at once, each reports it, and one filter is made.
"""

from __future__ import annotations

import logging
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple, Union

import redis

logger = logging.getLogger("shardbloom")

Item = Union[str, bytes, int, float]

# In the order of the reply; those after expansion are of filters with a window.
INFO_FIELDS = (
    "capacity",
    "size",
    "layers",
    "items",
    "expansion",
    "window",
    "slices",
    "sliding",
    "age",
)


def window_words(
    window: Optional[int], slices: Optional[int] = None, sliding: bool = False
) -> Tuple[Union[str, int], ...]:
    """The options of BF.RESERVE and BF.INSERT for a filter that forgets. Raises ValueError."""
    if window is None:
        if slices is not None or sliding:
            raise ValueError("slices and sliding need a window")
        return ()
    if window < 1 or window != int(window):
        raise ValueError(f"window must be a whole number of seconds, not {window}")
    words: Tuple[Union[str, int], ...] = ("WINDOW", int(window))
    if slices is not None:
        words += ("SLICES", slices)
    return (*words, "SLIDING") if sliding else words


class NotAdded(redis.RedisError):
    """Some items of add_many() were not added, or it is not known; the others were.

    answers has one entry for every item: True or False as add_many() returns them, None for those
    without an answer. The items with True are marked as seen now: whoever drops this exception
    drops them. After a lost connection (the cause is a redis.ConnectionError or TimeoutError), the
    server may have added items with None all the same; after a NotReplicated it has.
    """

    def __init__(self, answers: List[Optional[bool]], cause: Exception):
        super().__init__(str(cause))
        self.answers = answers
        self.cause = cause


class Filter:
    """One filter on a server.

    client      a client of redis-py (redis.Redis or RedisCluster). Make it without automatic
                retries, which redis-py 6 and newer have by default: an item whose command is
                repeated counts as seen before. Address.client() makes one that is right.
    name        the filter's key
    error       promised rate of false positives, if the filter must be created
    capacity    items that it is made for, if it must be created; it grows beyond, at a price
    options     further words for BF.INSERT at creation: ("EXPANSION", 4), ("NONSCALING",)
    window      seconds for which an item is remembered, if the filter must be created; capacity is
                the number of new items in that time. None: for ever
    slices      into which the window is cut; the server's default if None
    sliding     adding a known item makes it young again
    on_created  is called with this object whenever it has found no filter and created one;
                nvanished says whether it had been there before
    batch       items in one command

    The filter is created by create() or by the first add.
    """

    def __init__(
        self,
        client: Any,
        name: Union[str, bytes],
        *,
        error: float,
        capacity: int,
        options: Sequence[Union[str, int]] = (),
        window: Optional[int] = None,
        slices: Optional[int] = None,
        sliding: bool = False,
        on_created: Optional[Callable[["Filter"], None]] = None,
        batch: int = 1000,
    ):
        if not 0 < error < 1:
            raise ValueError(f"error must be between 0 and 1, not {error}")
        if capacity < 1 or batch < 1:
            raise ValueError("capacity and batch must be 1 or more")
        self.client = client
        self.name = name
        self.error = error
        self.capacity = capacity
        self.options = (*options, *window_words(window, slices, sliding))
        self.on_created = on_created
        self.batch = batch
        self.ncreated = 0  # how often it was not there and this object created it
        self.nvanished = 0  # how often of these it had been there before
        self._known = False  # it was there when last asked

    def __repr__(self) -> str:
        return f"Filter({self.name!r}, error={self.error!r}, capacity={self.capacity!r})"

    # ---- adding ----

    def create(self) -> bool:
        """Creates the filter if it is not there. True if it was not; that is reported as on every
        add.
        """
        try:
            words = ("BF.RESERVE", self.name, repr(self.error), self.capacity, *self.options)
            self.client.execute_command(*words)
        except redis.ResponseError as error:
            if "item exists" not in str(error):
                raise
            self._known = True
            return False
        self._was_created()
        return True

    def delete(self) -> bool:
        """Deletes the filter with all it knows; whether there was one. The next add makes it anew,
        which is no surprise then.
        """
        found = bool(self.client.execute_command("UNLINK", self.name))
        self._known = False
        return found

    def add(self, item: Item) -> bool:
        """Adds an item. True if it is new: asking and marking are one step, so of several callers
        one gets True.
        """
        answer = self._insert([item])[0]
        if isinstance(answer, Exception):
            raise answer
        return bool(answer)

    def add_many(self, items: Iterable[Item]) -> List[bool]:
        """Adds items, a batch in a command; for each, whether it is new. Raises NotAdded if that
        fails on the way.
        """
        todo = list(items)
        answers: List[Optional[bool]] = []
        failure: Optional[Exception] = None
        for at in range(0, len(todo), self.batch):
            try:
                replies = self._insert(todo[at : at + self.batch])
            except redis.RedisError as error:
                failure = error
                break
            for reply in replies:
                if isinstance(
                    reply, Exception
                ):  # a full NONSCALING filter refuses what is new to it
                    failure = failure or reply
                    answers.append(None)
                else:
                    answers.append(bool(reply))
        if failure is not None:
            answers += [None] * (len(todo) - len(answers))
            raise NotAdded(answers, failure) from failure
        return [bool(answer) for answer in answers]

    def _insert(self, items: Sequence[Item]) -> List[Any]:
        """One command, or two if the filter is not there."""
        try:
            replies = self.client.execute_command(
                "BF.INSERT", self.name, "NOCREATE", "ITEMS", *items
            )
            self._known = True
        except redis.ResponseError as error:
            if str(error) not in ("not found", "ERR not found"):
                raise
            words = ("CAPACITY", self.capacity, "ERROR", repr(self.error), *self.options)
            replies = self.client.execute_command("BF.INSERT", self.name, *words, "ITEMS", *items)
            self._was_created()
        return list(replies)

    def _was_created(self) -> None:
        self.ncreated += 1
        words = "%s has been created for %d items, error rate %g"
        if self._known:
            self.nvanished += 1
            words = (
                "%s had vanished, with everything it held; it has been created again for %d items,"
                " error rate %g"
            )
        level = logging.WARNING if self._known else logging.INFO
        self._known = True
        name = (
            self.name.decode(errors="backslashreplace")
            if isinstance(self.name, bytes)
            else self.name
        )
        logger.log(level, words, name, self.capacity, self.error)
        if self.on_created is not None:
            self.on_created(self)

    # ---- asking ----

    def exists(self, item: Item) -> bool:
        """Whether the item may have been added. False is certain; a filter that is not there
        contains nothing.
        """
        return bool(self.client.execute_command("BF.EXISTS", self.name, item))

    def exists_many(self, items: Iterable[Item]) -> List[bool]:
        """The same for many, a batch in a command."""
        todo = list(items)
        found: List[bool] = []
        for at in range(0, len(todo), self.batch):
            replies = self.client.execute_command(
                "BF.MEXISTS", self.name, *todo[at : at + self.batch]
            )
            for reply in replies:
                if isinstance(reply, Exception):
                    raise reply
                found.append(bool(reply))
        return found

    def __contains__(self, item: Item) -> bool:
        return self.exists(item)

    def count(self) -> int:
        """Items that were new when they were added and are not forgotten; 0 if there is none."""
        return int(self.client.execute_command("BF.CARD", self.name))

    def info(self) -> Dict[str, Optional[int]]:
        """capacity, size (bytes), layers, items, expansion (None: NONSCALING); of a filter with a
        window also window (seconds), slices, sliding, age (seconds since its oldest slice began).
        Raises ResponseError if it is missing.
        """
        return info_from(self.client.execute_command("BF.INFO", self.name))


def info_from(reply: Any) -> Dict[str, Optional[int]]:
    """BF.INFO's reply by name: a list of pairs in RESP2, a map in RESP3, an object after a call of
    client.bf().
    """
    if isinstance(reply, dict):
        values = list(reply.values())
    elif isinstance(reply, (list, tuple)):
        values = list(reply[1::2])
    else:
        names = ("capacity", "size", "filterNum", "insertedNum", "expansionRate")
        values = [getattr(reply, name) for name in names]
    return dict(zip(INFO_FIELDS, values))
