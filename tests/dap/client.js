// A client that nobody here wrote, @vscode/debugadapter-testsupport, on recordings of programs in C++, Rust and Go, forward and back.
//
//     node client.js REPRISE CLIENT SOURCES CPP RUST GO
//
// CLIENT is where the package was installed, SOURCES has the guests' sources, the others are the guests themselves.
'use strict';
const assert = require('assert');
const fs = require('fs');
const path = require('path');

const [reprise, client, sources, cpp, rust, go] = process.argv.slice(2);
const { DebugClient } = require(path.join(client, 'node_modules/@vscode/debugadapter-testsupport'));

// A machine with much else to do is no reason to fail; a test that hangs is ended from outside.
const PATIENCE = 300000;

function lineOf(file, text) {
    const lines = fs.readFileSync(file, 'utf8').split('\n');
    const at = lines.findIndex(line => line.includes(text));
    assert(at >= 0, `${file} has no ${text}`);
    return at + 1;
}

async function withClient(then) {
    const dc = new DebugClient(reprise, 'dap', 'reprise', undefined, true);
    dc.defaultTimeout = PATIENCE;
    await dc.start();
    try {
        await then(dc);
    } finally {
        await dc.stop();
    }
}

// Makes a motion, and tells where it has led.
async function moved(dc, request) {
    const [stopped] = await Promise.all([dc.waitForEvent('stopped', PATIENCE), request()]);
    const threadId = stopped.body.threadId;
    const stack = await dc.stackTraceRequest({ threadId, startFrame: 0, levels: 20 });
    const frames = stack.body.stackFrames;
    return { reason: stopped.body.reason, event: stopped.body.event, threadId, frames, frame: frames[0] };
}

async function locals(dc, frame) {
    const scopes = await dc.scopesRequest({ frameId: frame.id });
    const scope = scopes.body.scopes.find(s => s.name === 'Locals');
    const all = await dc.variablesRequest({ variablesReference: scope.variablesReference });
    return all.body.variables;
}

async function parts(dc, variable) {
    assert(variable.variablesReference > 0, `${variable.name} has no parts`);
    const all = await dc.variablesRequest({ variablesReference: variable.variablesReference });
    return all.body.variables;
}

// Records a program, stops where `text` stands in its source, and goes from there.
async function onBreakpoint(program, file, text, then) {
    const line = lineOf(file, text);
    await withClient(async dc => {
        const stop = dc.waitForEvent('stopped', PATIENCE);
        await dc.hitBreakpoint({ program }, { path: file, line });
        const first = (await stop).body;
        assert.strictEqual(first.reason, 'breakpoint');
        assert.strictEqual(first.hitBreakpointIds.length, 1);
        await then(dc, line, first.threadId);
    });
}

async function inCpp() {
    const file = path.join(sources, 'debugged_cpp.cpp');
    await onBreakpoint(cpp, file, 'here it is added', async (dc, line, threadId) => {
        // Every time it is passed, on and back.
        const amounts = [];
        const sizes = [];
        let at = await moved(dc, () => dc.continueRequest({ threadId }));
        for (;;) {
            const all = await locals(dc, at.frame);
            amounts.push(all.find(v => v.name === 'amount').value);
            const account = all.find(v => v.name === 'this');
            const entries = (await parts(dc, account)).find(v => v.name === 'entries');
            sizes.push(entries.value);
            if (amounts.length === 3) {
                const one = await parts(dc, entries);
                assert.deepStrictEqual(one.map(v => [v.name, v.value]), [['[0]', '1'], ['[1]', '4'], ['[2]', '9']]);
                break;
            }
            at = await moved(dc, () => dc.continueRequest({ threadId }));
            assert.strictEqual(at.frame.line, line);
        }
        assert.deepStrictEqual(amounts, ['4', '9', '16']);
        assert(sizes[0].startsWith('std::vector of length 1'), sizes[0]);
        for (const amount of ['9', '4', '1']) {
            at = await moved(dc, () => dc.reverseContinueRequest({ threadId }));
            assert.strictEqual(at.reason, 'breakpoint');
            const all = await locals(dc, at.frame);
            assert.strictEqual(all.find(v => v.name === 'amount').value, amount);
        }
        const told = await dc.evaluateRequest({ expression: 'amount * 2', frameId: at.frame.id, context: 'watch' });
        assert.strictEqual(told.body.result, '2');
        await assert.rejects(dc.evaluateRequest({ expression: 'no_such_name', frameId: at.frame.id, context: 'watch' }), /No symbol/);
    });
}

async function inRust() {
    const file = path.join(sources, 'debugged_rust.rs');
    await onBreakpoint(rust, file, 'total.lock().unwrap().push(amount)', async (dc, line, threadId) => {
        let at = await moved(dc, () => dc.continueRequest({ threadId }));
        assert.strictEqual(at.frame.line, line);
        assert(at.frame.name.includes('deposit'), at.frame.name);
        const here = at.event;
        // By the line, forward and back again. Other threads pass it, too, and are not to stop there.
        const clear = () => dc.setBreakpointsRequest({ source: { path: file }, breakpoints: [] });
        await clear();
        await moved(dc, () => dc.nextRequest({ threadId: at.threadId }));
        at = await moved(dc, () => dc.stepBackRequest({ threadId: at.threadId }));
        assert.strictEqual(at.frame.line, line);
        assert.strictEqual(at.event, here);
        await dc.setBreakpointsRequest({ source: { path: file }, breakpoints: [{ line }] });
        at = await moved(dc, () => dc.reverseContinueRequest({ threadId: at.threadId }));
        assert.strictEqual(at.frame.line, line);
        // The end is a crash.
        await clear();
        at = await moved(dc, () => dc.continueRequest({ threadId }));
        assert.strictEqual(at.reason, 'exception');
        const why = await dc.exceptionInfoRequest({ threadId: at.threadId });
        assert.strictEqual(why.body.exceptionId, 'SIGABRT');
        assert(why.body.details.stackTrace.includes('debugged_rust::main'), why.body.details.stackTrace);
    });
}

async function inGo() {
    const file = path.join(sources, 'debugged_go.go');
    await onBreakpoint(go, file, '*total += amount', async (dc, line, threadId) => {
        let at = await moved(dc, () => dc.continueRequest({ threadId }));
        assert.strictEqual(at.frame.name, 'main.deposit');
        assert.strictEqual(at.frame.line, line);
        assert((await locals(dc, at.frame)).some(v => v.name === 'amount' && /^[123]$/.test(v.value)));
        const here = at.event;
        at = await moved(dc, () => dc.reverseContinueRequest({ threadId: at.threadId }));
        assert.strictEqual(at.frame.line, line);
        at = await moved(dc, () => dc.continueRequest({ threadId: at.threadId }));
        assert.strictEqual(at.event, here);
        await dc.setBreakpointsRequest({ source: { path: file }, breakpoints: [] });
        const back = await moved(dc, () => dc.stepBackRequest({ threadId: at.threadId }));
        assert.strictEqual(back.frame.name, 'main.deposit');
        assert(back.frame.line < line, `${back.frame.line}`);
    });
}

// Where nothing is left to wait for before all is well, it is not.
process.exitCode = 1;
(async () => {
    for (const [name, test] of [['C++', inCpp], ['Rust', inRust], ['Go', inGo]]) {
        await test();
        console.log(`${name} is well`);
    }
})().then(() => process.exit(0), why => {
    console.error(why);
    process.exit(1);
});
