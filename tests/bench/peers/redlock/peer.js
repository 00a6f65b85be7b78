// node-redlock 4 and 5 for tests/bench/redlock: CLIENTS loops in one process that take and give back a lock each.
//
//   node peer.js INSTALLED SERVERS CLIENTS [LEADER]
//
// With LEADER of a fencelock cluster each lock comes with a token. Reads "run MS", answers with a line of JSON.
'use strict';
const path = require('path');
const readline = require('readline');
const home = path.join(process.argv[2], 'node_modules');
const Redis = require(path.join(home, 'ioredis'));
const module_ = require(path.join(home, 'redlock'));
const Redlock = module_.default || module_;

const TTL = 10000;
function connect(address) {
  const [host, port] = address.split(':');
  return new Redis({ host, port: Number(port), enableReadyCheck: false });
}
const redlock = new Redlock(process.argv[3].split(',').map(connect));
redlock.on('error', () => {});
redlock.on('clientError', () => {});
const old = typeof redlock.lock === 'function'; // version 4
const clients = Number(process.argv[4]);
const leader = process.argv[5] ? connect(process.argv[5]) : null;

async function once(name) {
  const lock = old ? await redlock.lock(name, TTL) : await redlock.acquire([name], TTL);
  if (leader) await leader.call('TOKEN', name);
  await (old ? lock.unlock() : lock.release());
}

async function run(ms) {
  const samples = [];
  let errors = 0;
  const began = process.hrtime.bigint();
  const end = began + BigInt(ms) * 1000000n;
  const cpu = process.cpuUsage();
  await Promise.all(Array.from({ length: clients }, async (_, i) => {
    for (let now = began; now < end; ) {
      try {
        await once('node' + i);
      } catch (error) {
        errors++;
      }
      const then = process.hrtime.bigint();
      samples.push(Number(then - now) / 1000);
      now = then;
    }
  }));
  const seconds = Number(process.hrtime.bigint() - began) / 1e9;
  const used = process.cpuUsage(cpu);
  samples.sort((a, b) => a - b);
  const n = samples.length;
  return {
    pairs: n, errors, seconds, cpu_s: (used.user + used.system) / 1e6, p50_us: Math.round(samples[n >> 1]),
    p99_us: Math.round(samples[n - 1 - Math.floor(n / 100)]), max_us: Math.round(samples[n - 1]),
  };
}

(async () => {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    console.log(JSON.stringify(await run(Number(line.split(' ')[1]))));
  }
  process.exit(0);
})();
