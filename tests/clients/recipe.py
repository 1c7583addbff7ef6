"""The well-known recipe for a Bloom filter on SETBIT, as crawlers run it: what BF.ADOPT must agree
with bit for bit.

Written from its description: the value is the item's MD5 in hexadecimal, or the item itself where
that is a fingerprint already; its first two digits modulo the number of blocks choose the string;
each seed gives one bit. Here the bits of an item go out together, to save the tests time.
"""

import hashlib


class Recipe:
    SEEDS = (5, 7, 11, 13, 31, 37, 61)

    def __init__(self, server, prefix="bloomfilter", blocks=None, bits=31, seeds=SEEDS, md5=True):
        self.server, self.prefix, self.blocks = server, prefix, blocks
        self.bits, self.seeds, self.md5 = bits, seeds, md5

    def place(self, item):
        value = hashlib.md5(item.encode()).hexdigest() if self.md5 else item
        name = self.prefix
        if self.blocks is not None:
            name += str(int(value[0:2], 16) % self.blocks)
        positions = []
        for seed in self.seeds:
            ret = 0
            for character in value:
                ret += seed * ret + ord(character)
            positions.append(ret & ((1 << self.bits) - 1))
        return name, positions

    def contains(self, item):
        if not item:
            return False
        name, positions = self.place(item)
        pipeline = self.server.pipeline(transaction=False)
        for position in positions:
            pipeline.getbit(name, position)
        return all(pipeline.execute())

    def insert(self, item):
        name, positions = self.place(item)
        pipeline = self.server.pipeline(transaction=False)
        for position in positions:
            pipeline.setbit(name, position, 1)
        pipeline.execute()
