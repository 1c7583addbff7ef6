"""A survey in the text format that Prometheus scrapes. docs/monitoring.md explains how to use it.
"""

from __future__ import annotations

from typing import Callable, Dict, List, Optional, Tuple, Union

from shardbloom.survey import FilterState, Survey

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# Of INFO bf: those that only grow while a server runs. What else there is may go up and down.
COUNTERS = {
    "bf_adds",
    "bf_items_added",
    "bf_checks",
    "bf_hits",
    "bf_shards_removed",
    "bf_sweep_lookups",
    "bf_timer_runs",
}

HELP = {
    "bf_filters": "Filters alive",
    "bf_shards": "Shards of all filters",
    "bf_bytes": "Bytes of all shards",
    "bf_items": "Items in all filters",
    "bf_adds": "Items given to commands that add",
    "bf_items_added": "Items that were new",
    "bf_checks": "Items checked",
    "bf_hits": "Items checked and found",
    "bf_shards_lost": "Shards that a command found lost and none has found sound since",
    "bf_sweeps_pending": "Deleted filters whose shards are still to be removed",
    "bf_shards_removed": "Shards removed",
    "bf_sweep_lookups": "Names that were looked up to remove shards",
    "bf_timer_runs": "Runs of the module's timer",
    "bf_timer_longest_us": "Longest run of the module's timer, in microseconds",
    "bf_spare_bytes": "Memory held ready for shards that will soon become bitmaps",
}

FilterValue = Callable[[FilterState], Optional[float]]

PER_FILTER: Tuple[Tuple[str, str, FilterValue], ...] = (
    ("items", "Items in the filter", lambda one: one.items),
    (
        "capacity",
        "Items that the filter is made for; more if it has grown",
        lambda one: one.capacity,
    ),
    ("bytes", "Bytes of descriptor and shards", lambda one: one.bytes),
    ("layers", "Layers; a filter that fits has one", lambda one: len(one.layers)),
    ("error_rate", "Rate of false positives to expect now", lambda one: one.error),
    (
        "error_rate_promised",
        "Rate of false positives that the filter was created for",
        lambda one: one.promised,
    ),
    (
        "window_seconds",
        "Time for which the filter remembers an item; only of filters that forget",
        lambda one: one.window,
    ),
    (
        "oldest_slice_age_seconds",
        "Time since the oldest slice that counts began; only of filters that forget",
        lambda one: one.age,
    ),
    ("shards_lost", "Shards that are lost or damaged", lambda one: len(one.lost)),
    (
        "damaged",
        "1 if shards are lost or the filter can't be read",
        lambda one: int(one.damaged()),
    ),
    ("partitions", "Partitions of a partitioned filter", lambda one: one.partitions),
)


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def sample(name: str, labels: Dict[str, str], value: Union[int, float]) -> str:
    inside = ",".join(f"{label}={quoted(text)}" for label, text in labels.items())
    return f"{name}{{{inside}}} {value!r}"


def family(name: str, kind: str, about: str, samples: List[str]) -> List[str]:
    return [f"# HELP {name} {about}", f"# TYPE {name} {kind}", *samples] if samples else []


def exposition(survey: Survey, parts: bool = False) -> str:
    """All metrics of a survey that went well; with parts, also those of each partition."""
    lines = up(str(survey.servers), 1)
    lines += family(
        "shardbloom_node_up",
        "gauge",
        "1 if this primary of the cluster, or this server, answers",
        [sample("shardbloom_node_up", {"node": node}, 1) for node in survey.totals]
        + [sample("shardbloom_node_up", {"node": node}, 0) for node in survey.down],
    )
    for field in dict.fromkeys(name for numbers in survey.totals.values() for name in numbers):
        counter = field in COUNTERS
        name = "shardbloom_" + field[len("bf_") :] + ("_total" if counter else "")
        samples = [
            sample(name, {"node": node}, numbers[field]) for node, numbers in survey.totals.items()
        ]
        lines += family(
            name, "counter" if counter else "gauge", HELP.get(field, f"{field} of INFO bf"), samples
        )
    for suffix, about, value in PER_FILTER:
        name = "shardbloom_filter_" + suffix
        samples = []
        for one in survey.filters.values():
            number = value(one)
            if number is not None:
                samples.append(sample(name, {"db": str(one.db), "filter": one.key}, number))
        lines += family(name, "gauge", about, samples)
    # Under names of their own: a sum over all filters would count them twice.
    for suffix, about, value in PER_FILTER if parts else ():
        name = "shardbloom_partition_" + suffix
        samples = []
        for one in survey.filters.values():
            for part in one.parts:
                number = value(part)
                if number is not None:
                    labels = {"db": str(one.db), "filter": one.key, "partition": part.key}
                    samples.append(sample(name, labels, number))
        lines += family(name, "gauge", f"{about} (one partition)", samples)
    lines += family(
        "shardbloom_survey_seconds",
        "gauge",
        "Time that it took to look at all filters",
        [f"shardbloom_survey_seconds {survey.seconds!r}"],
    )
    return "\n".join(lines) + "\n"


def up(server: str, value: int) -> List[str]:
    """Whether the server could be asked."""
    samples = [sample("shardbloom_up", {"server": server}, value)]
    return family("shardbloom_up", "gauge", "1 if the server answered", samples)
