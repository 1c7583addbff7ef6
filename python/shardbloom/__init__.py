"""Bloom filters in Redis without big keys: a client for the shardbloom module.

    import redis
    from shardbloom import Filter

    seen = Filter(redis.Redis(), "seen", error=1e-6, capacity=100_000_000)
    if seen.add("https://example.com/"):
        ...  # new
"""

from shardbloom.connection import Address, Failure
from shardbloom.filter import Filter, NotAdded
from shardbloom.partitioned import NotReplicated, PartitionedFilter
from shardbloom.plan import PlanError

__all__ = [
    "Address",
    "Failure",
    "Filter",
    "NotAdded",
    "NotReplicated",
    "PartitionedFilter",
    "PlanError",
]
__version__ = "1.0.0"
