// The harness of tests/check.h in JavaScript: the same words, so that scripts/run-tests can count.
import assert from 'node:assert/strict';
import net from 'node:net';

export { assert };
export const port = Number(process.env.PORT);

const LIMIT_MS = 60000;
const tests = [];

export function test(name, run) {
    tests.push({ name: name.replaceAll(' ', '_'), run }); // one word, as in C
}

function within(promise) {
    let timer;
    const limit = new Promise((_, reject) => {
        timer = setTimeout(() => reject(new Error(`no end after ${LIMIT_MS} ms`)), LIMIT_MS);
    });
    return Promise.race([promise, limit]).finally(() => clearTimeout(timer));
}

// Whether the server knows a command: tests for one that it lacks are not registered.
export function serverHas(command) {
    return new Promise((resolve, reject) => {
        const socket = net.connect(port, '127.0.0.1', () => {
            socket.write(`COMMAND INFO ${command}\r\n`);
        });
        socket.once('data', reply => {
            socket.destroy();
            resolve(!/^\*1\r\n[*$]-1\r\n/.test(reply.toString('latin1')));
        });
        socket.once('error', reject);
    });
}

// Runs the tests whose name contains the first argument, or the one with exactly this name.
export async function runAll() {
    const only = process.argv[2] ?? '';
    const exact = tests.filter(t => t.name === only);
    let passed = 0, failed = 0;
    for (const { name, run } of exact.length ? exact : tests.filter(t => t.name.includes(only))) {
        // Names the one that crashes or hangs.
        if (process.env.TEST_ANNOUNCE) console.log(`  run     ${name}`);
        const start = performance.now();
        let problem;
        try {
            await within(run());
        } catch (error) {
            problem = error;
        }
        const seconds = ((performance.now() - start) / 1000).toFixed(2);
        if (problem) {
            console.log(`    ${problem.stack.replaceAll('\n', '\n    ')}`);
            console.log(`  FAILED  ${name} (${seconds} s)`);
            failed++;
        } else {
            console.log(`  ok      ${name} (${seconds} s)`);
            passed++;
        }
    }
    console.log(`${passed} passed, ${failed} failed`);
    process.exit(failed ? 1 : 0);
}
