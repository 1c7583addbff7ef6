#!/usr/bin/env node
// ioredis has no methods for BF.*: people use call(). It speaks RESP3 unless told otherwise, but
// shows replies in the forms of RESP2 by default.
import { assert, port, runAll, serverHas, test } from './check.mjs';
import { readFileSync } from 'node:fs';
import { Redis } from 'ioredis';

async function withClient(options, run) {
    const settings = { port, host: '127.0.0.1', retryStrategy: null, maxRetriesPerRequest: 0 };
    const client = new Redis({ ...settings, ...options });
    client.on('error', () => {});
    try {
        await client.flushall();
        await run(client);
    } finally {
        client.disconnect();
    }
}

const about = new URL('node_modules/ioredis/package.json', import.meta.url);
const { version } = JSON.parse(readFileSync(about));
const hasChunks = await serverHas('BF.SCANDUMP');

for (const protocol of [2, 3]) {
    const check = (name, run) =>
        test(`ioredis@${version} RESP${protocol}: ${name}`, () => withClient({ protocol }, run));

    check('reserve, add, exists', async client => {
        assert.equal(await client.call('BF.RESERVE', 'k', '0.01', '100', 'SEED', '1'), 'OK');
        assert.equal(await client.call('BF.ADD', 'k', 'a'), 1);
        assert.equal(await client.call('BF.ADD', 'k', 'a'), 0);
        assert.equal(await client.call('BF.EXISTS', 'k', 'a'), 1);
        assert.equal(await client.call('BF.EXISTS', 'k', 'b'), 0);
        assert.equal(await client.call('BF.CARD', 'k'), 1);
        await assert.rejects(client.call('BF.RESERVE', 'k', '0.01', '100'), /ERR item exists/);
    });

    check('batches', async client => {
        assert.deepEqual(await client.call('BF.MADD', 'k', 'a', 'b', 'a'), [1, 1, 0]);
        assert.deepEqual(await client.call('BF.MEXISTS', 'k', ['a', 'c']), [1, 0]);
        const options = ['CAPACITY', 10, 'ERROR', 0.001, 'SEED', 1];
        const inserted = await client.call('BF.INSERT', 'l', ...options, 'ITEMS', 'a', 'b');
        assert.deepEqual(inserted, [1, 1]);
    });

    check('info', async client => {
        await client.call('BF.RESERVE', 'k', '0.01', '100', 'NONSCALING');
        const info = await client.call('BF.INFO', 'k');
        assert.deepEqual([...info.slice(0, 3), ...info.slice(4)], [
            'Capacity', 100, 'Size', 'Number of filters', 1,
            'Number of items inserted', 0, 'Expansion rate', null,
        ]);
        assert.ok(Number.isInteger(info[3]));
        assert.deepEqual(await client.call('BF.INFO', 'k', 'CAPACITY'),
            protocol === 2 ? [100] : ['Capacity', 100]);
    });

    check('an array with an error in it', async client => {
        await client.call('BF.RESERVE', 'k', '0.001', '1', 'NONSCALING', 'SEED', 1);
        const [first, second] = await client.call('BF.MADD', 'k', 'a', 'b');
        assert.equal(first, 1);
        assert.ok(second instanceof Error);
        assert.match(second.message, /non scaling filter is full/);
    });

    check('pipelines, transactions, bytes', async client => {
        const item = Buffer.from([0, 255, 13, 10]);
        const pipeline = client.pipeline().call('BF.ADD', 'k', item).call('BF.EXISTS', 'k', item);
        assert.deepEqual(await pipeline.exec(), [[null, 1], [null, 1]]);
        const transaction = client.multi().call('BF.ADD', 'k', 'b').call('BF.CARD', 'k');
        assert.deepEqual(await transaction.exec(), [[null, 1], [null, 2]]);
    });

    if (hasChunks) check('chunks', async client => {
        const items = Array.from({ length: 2000 }, (_, i) => `item${i}`);
        await client.call('BF.MADD', 'from', ...items);
        for (let at = 0; ;) {
            const [next, chunk] = await client.callBuffer('BF.SCANDUMP', 'from', at);
            if (Number(next) === 0) break;
            assert.equal(await client.call('BF.LOADCHUNK', 'to', next, chunk), 'OK');
            at = next;
        }
        assert.equal(await client.call('BF.CARD', 'to'), await client.call('BF.CARD', 'from'));
        assert.ok((await client.call('BF.MEXISTS', 'to', ...items)).every(known => known === 1));
    });
}

test(`ioredis@${version} RESP3, unchanged replies`, () =>
    withClient({ protocol: 3, replyMapping: 'resp3' }, async client => {
        assert.equal(await client.call('BF.ADD', 'k', 'a'), true);
        assert.deepEqual(await client.call('BF.MEXISTS', 'k', 'a', 'b'), [true, false]);
        assert.equal((await client.call('BF.INFO', 'k')).Capacity, 100);
    }));

await runAll();
