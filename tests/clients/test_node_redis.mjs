#!/usr/bin/env node
// client.bf of node-redis, three major versions, in every protocol each of them speaks.
import { assert, port, runAll, serverHas, test } from './check.mjs';
import { readFileSync } from 'node:fs';

// The five numbers of BF.INFO: version 4 names them itself, later ones pass the server's names on.
const INFO_NAMES_4 = [
    'capacity', 'size', 'numberOfFilters', 'numberOfInsertedItems', 'expansionRate',
];
const INFO_NAMES = [
    'Capacity', 'Size', 'Number of filters', 'Number of items inserted', 'Expansion rate',
];

const variants = [
    { alias: 'redis-4', options: {}, infoNames: INFO_NAMES_4 },
    { alias: 'redis-5', options: { RESP: 2 }, infoNames: INFO_NAMES },
    { alias: 'redis-5', options: { RESP: 3 }, infoNames: INFO_NAMES },
    { alias: 'redis-6', options: { RESP: 2 }, infoNames: INFO_NAMES },
    { alias: 'redis-6', options: { RESP: 3 }, infoNames: INFO_NAMES },
];

// Connects, empties the server, runs, disconnects. An error of the connection fails the test.
async function withClient({ alias, options }, run) {
    const redis = await import(alias);
    const socket = { port, host: '127.0.0.1', reconnectStrategy: false };
    const client = redis.createClient({ socket, ...options });
    client.on('error', () => {});
    await client.connect();
    try {
        await client.flushAll();
        await run(client, redis);
    } finally {
        await (client.destroy ? client.destroy() : client.disconnect());
    }
}

const hasChunks = await serverHas('BF.SCANDUMP');

// The client with replies as Buffers: what a filter's chunks need.
function forBytes({ alias }, client, redis) {
    if (alias === 'redis-4') {
        const options = redis.commandOptions({ returnBuffers: true });
        return { scanDump: (key, at) => client.bf.scanDump(options, key, at) };
    }
    const typed = client.withTypeMapping({ [redis.RESP_TYPES.BLOB_STRING]: Buffer });
    return { scanDump: (key, at) => typed.bf.scanDump(key, at) };
}

for (const variant of variants) {
    const { alias, options, infoNames } = variant;
    const about = new URL(`node_modules/${alias}/package.json`, import.meta.url);
    const { version } = JSON.parse(readFileSync(about));
    const title = `redis@${version}${options.RESP ? ` RESP${options.RESP}` : ''}`;
    const check = (name, run) =>
        test(`${title}: ${name}`, () => withClient(variant, run));

    check('reserve', async client => {
        assert.equal(await client.bf.reserve('a', 0.01, 100), 'OK');
        assert.equal(await client.bf.reserve('b', 0.01, 100, { EXPANSION: 4 }), 'OK');
        assert.equal(await client.bf.reserve('c', 0.01, 100, { NONSCALING: true }), 'OK');
        await assert.rejects(client.bf.reserve('a', 0.01, 100), /^\w*Error: ERR item exists$/);
    });

    check('add', async client => {
        assert.equal(await client.bf.add('k', 'item'), true);
        assert.equal(await client.bf.add('k', 'item'), false);
        await client.set('string', 'x');
        await assert.rejects(client.bf.add('string', 'item'), /WRONGTYPE/);
    });

    check('mAdd', async client => {
        assert.deepEqual(await client.bf.mAdd('k', ['a', 'b']), [true, true]);
        assert.deepEqual(await client.bf.mAdd('k', ['b', 'c', 'c']), [false, true, false]);
    });

    check('exists', async client => {
        assert.equal(await client.bf.exists('k', 'a'), false);
        await client.bf.add('k', 'a');
        assert.equal(await client.bf.exists('k', 'a'), true);
        assert.equal(await client.bf.exists('k', 'b'), false);
    });

    check('mExists', async client => {
        await client.bf.add('k', 'a');
        assert.deepEqual(await client.bf.mExists('k', ['a', 'b']), [true, false]);
        assert.deepEqual(await client.bf.mExists('none', ['a', 'b']), [false, false]);
    });

    // Seven hashes in blocks of 512 bits: c is taken for a or b with a probability of
    // (14 / 512)^7 < 1e-10.
    check('insert', async client => {
        const wanted = { CAPACITY: 1000, ERROR: 0.001, EXPANSION: 3 };
        assert.deepEqual(await client.bf.insert('k', ['a', 'b'], wanted), [true, true]);
        assert.deepEqual(await client.bf.insert('k', ['a', 'c'], { NOCREATE: true }),
            [false, true]);
        assert.deepEqual(await client.bf.insert('one', 'a', { NONSCALING: true }), [true]);
        await assert.rejects(client.bf.insert('none', ['a'], { NOCREATE: true }), /ERR not found/);
    });

    // Six hashes in blocks of 512 bits: b is taken for a with a probability of (6 / 512)^6 < 1e-11.
    check('info', async client => {
        await client.bf.reserve('k', 0.01, 1000, { EXPANSION: 3 });
        await client.bf.mAdd('k', ['a', 'b']);
        const info = await client.bf.info('k');
        assert.deepEqual(Object.keys(info), infoNames);
        const [capacity, size, filters, items, expansion] = infoNames.map(name => info[name]);
        assert.deepEqual([capacity, filters, items, expansion], [1000, 1, 2, 3]);
        assert.ok(Number.isInteger(size) && size > 100); // two items in a table
        await client.bf.reserve('fixed', 0.01, 10, { NONSCALING: true });
        assert.equal((await client.bf.info('fixed'))[infoNames[4]], null);
        await assert.rejects(client.bf.info('none'), /ERR not found/);
    });

    check('card', async client => {
        assert.equal(await client.bf.card('k'), 0);
        await client.bf.mAdd('k', ['a', 'b', 'a']);
        assert.equal(await client.bf.card('k'), 2);
    });

    check('a full filter', async client => {
        await client.sendCommand(['BF.RESERVE', 'k', '0.001', '1', 'NONSCALING', 'SEED', '1']);
        assert.equal(await client.bf.add('k', 'a'), true);
        await assert.rejects(client.bf.add('k', 'b'), /ERR non scaling filter is full/);
    });

    check('transactions and scripts', async client => {
        const transaction = client.multi().bf.add('k', 'a').bf.exists('k', 'a').bf.card('k');
        assert.deepEqual(await transaction.exec(), [true, true, 1]);
        const script = "return redis.call('BF.ADD', KEYS[1], ARGV[1])";
        assert.equal(await client.eval(script, { keys: ['k'], arguments: ['b'] }), 1);
    });

    check('bytes as items', async client => {
        const item = Buffer.from([0, 255, 13, 10, 0]);
        assert.equal(await client.bf.add('k', item), true);
        assert.equal(await client.bf.exists('k', item), true);
        assert.equal(await client.bf.exists('k', Buffer.from([0, 255, 13, 10])), false);
    });

    if (hasChunks) check('scanDump and loadChunk', async (client, redis) => {
        const items = Array.from({ length: 2000 }, (_, i) => `item${i}`);
        await client.bf.reserve('from', 0.001, 500);
        await client.bf.mAdd('from', items);
        const bytes = forBytes(variant, client, redis);
        for (let at = 0; ;) {
            const { iterator, chunk } = await bytes.scanDump('from', at);
            if (iterator === 0) break;
            assert.ok(Buffer.isBuffer(chunk));
            assert.equal(await client.bf.loadChunk('to', iterator, chunk), 'OK');
            at = iterator;
        }
        assert.equal(await client.bf.card('to'), await client.bf.card('from'));
        assert.ok((await client.bf.mExists('to', items)).every(known => known));
    });
}

await runAll();
