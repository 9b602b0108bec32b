// Node with worker threads: messages, shared memory with Atomics and without, timers, promises.
'use strict';
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');

if (!isMainThread) {
  const shared = new Int32Array(workerData.shared);
  let racy = 0;
  for (let i = 0; i < workerData.rounds; i++) {
    Atomics.add(shared, 0, 1);
    shared[1] = shared[1] + 1;
    if (i % 1000 === 0) racy = (racy * 31 + shared[1]) | 0;
  }
  parentPort.on('message', (m) => {
    parentPort.postMessage({ me: workerData.me, answer: m.question * 2, racy });
    if (m.last) parentPort.close();
  });
} else {
  const rounds = Number(process.argv[2] || 20000);
  const shared = new SharedArrayBuffer(8);
  const order = [];
  const workers = [];
  let exits = 0;
  for (let me = 0; me < 4; me++) {
    const w = new Worker(__filename, { workerData: { me, shared, rounds } });
    w.on('message', (m) => order.push(`${m.me}:${m.answer}:${m.racy}`));
    w.on('exit', () => {
      if (++exits < 4) return;
      const view = new Int32Array(shared);
      if (view[0] !== 4 * rounds || order.length !== 20) process.exit(99);
      console.log(`racy ${view[1]}, order ${order.join(' ')}`);
      console.log(`at ${process.hrtime.bigint()}, random ${Math.random()}`);
    });
    workers.push(w);
  }
  for (let q = 0; q < 5; q++) for (const w of workers) w.postMessage({ question: q, last: q === 4 });
  setTimeout(() => console.log('a timer'), 2);
  Promise.resolve().then(() => console.log('a promise'));
}
