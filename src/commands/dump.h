/* dump.h: BF.SCANDUMP and BF.LOADCHUNK, which move a filter between servers in pieces. */
#ifndef DUMP_H
#define DUMP_H

#include "redismodule.h"

int BFScanDump_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);
int BFLoadChunk_RedisCommand(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);

#endif
