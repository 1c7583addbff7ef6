# Settings of a Scrapy project that uses shardbloom. README.md beside this file explains them.

DUPEFILTER_CLASS = "shardbloom.scrapy.BloomDupeFilter"

BLOOM_URL = "redis://127.0.0.1:6379/0"
BLOOM_CAPACITY = 100_000_000  # requests; BF.PLAN 1e-6 100000000 shows the memory it takes
BLOOM_ERROR_RATE = 1e-6

# With scrapy-redis, whose queue all workers share. Without SCHEDULER_PERSIST, the first worker that
# finishes clears the queue and the filter for all.
# SCHEDULER = "scrapy_redis.scheduler.Scheduler"
# SCHEDULER_PERSIST = True
# REDIS_URL = BLOOM_URL
# BLOOM_FINGERPRINT = "scrapy-redis"  # if its set was moved into the filter (docs/migrating.md)
