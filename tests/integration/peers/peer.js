// node-redlock 4 and 5, and redis-semaphore, as a peer: see redlock_peers.py for the lines it reads and writes.
'use strict';
const fs = require('fs');
const path = require('path');
const readline = require('readline');
const home = path.join(process.argv[2], 'node_modules'); // where it was installed
const Redis = require(path.join(home, 'ioredis'));
const semaphore = process.argv[4] === 'semaphore' && require(path.join(home, 'redis-semaphore'));
const module_ = semaphore || require(path.join(home, 'redlock'));
const Redlock = module_.default || module_;

const servers = process.argv[3].split(',').map((address) => {
  const [host, port] = address.split(':');
  const option = { host, port: Number(port) };
  if (process.env.PEER_CA) option.tls = { ca: fs.readFileSync(process.env.PEER_CA) };
  if (process.env.PEER_USER) Object.assign(option, { username: process.env.PEER_USER, password: process.env.PEER_PASSWORD });
  return option;
});
// All of them are one cluster, whose master is to be looked for.
function throughSentinel() {
  const { tls, username, password } = servers[0];
  return [{ sentinels: servers.map(({ host, port }) => ({ host, port })), name: 'mymaster', role: 'master', tls, username, password,
    sentinelTLS: tls, enableTLSForSentinelMode: Boolean(tls), sentinelUsername: username, sentinelPassword: password }];
}
const options = process.argv[4] === 'sentinel' ? throughSentinel() : servers;
const clients = options.map((option) => {
  const client = new Redis(option);
  client.on('error', () => {});
  return client;
});
const redlock = semaphore ? {} : new Redlock(clients, { retryCount: 0 });
if (!semaphore) {
  redlock.on(redlock.listenerCount('clientError') ? 'clientError' : 'error', () => {});
  redlock.on('clientError', () => {});
}
const old = typeof redlock.lock === 'function'; // version 4
let lock = null;

// Refused by others is what the library says when a quorum could not be had; the rest is an error.
function refused(error) {
  return error.name === 'LockError' || error.name === 'ExecutionError';
}

// A Mutex of redis-semaphore, whose lock is the key with `mutex:` before it.
async function runSemaphore(words) {
  if (words[0] === 'lock') {
    lock = new semaphore.Mutex(clients[0], words[1], { lockTimeout: Number(words[2]), acquireAttemptsLimit: 1, refreshInterval: 0 });
    return (await lock.tryAcquire()) ? 'held' : 'refused';
  }
  if (words[0] === 'token') {
    const token = await clients[0].call('LOCKTOKEN', lock._key, lock.identifier);
    return token === null ? 'none' : `token ${token}`;
  }
  if (words[0] === 'extend') return (await lock._refresh()) ? 'held' : 'lost';
  await lock.release();
  return 'done';
}

// ioredis, set up for a Redis Cluster.
async function runCluster(words) {
  const cluster = new Redis.Cluster(servers, { clusterRetryStrategy: () => null });
  const why = new Promise((_, reject) => cluster.on('error', (error) => reject(new Error(`${error} ${error.lastNodeError}`))));
  return Promise.race([why, cluster.set(words[1], 'value', 'PX', Number(words[2]), 'NX').catch(() => why)]);
}

async function run(words) {
  if (process.argv[4] === 'cluster') return runCluster(words);
  if (semaphore) return runSemaphore(words);
  if (words[0] === 'lock') {
    try {
      lock = old ? await redlock.lock(words[1], Number(words[2])) : await redlock.acquire([words[1]], Number(words[2]));
      return 'held';
    } catch (error) {
      if (refused(error)) return 'refused';
      throw error;
    }
  }
  if (words[0] === 'token') {
    const token = await clients[0].call('LOCKTOKEN', old ? lock.resource : lock.resources[0], lock.value);
    return token === null ? 'none' : `token ${token}`;
  }
  try {
    if (words[0] === 'extend') {
      lock = await lock.extend(Number(words[1]));
      return 'held';
    }
    await (old ? lock.unlock() : lock.release());
    return 'freed';
  } catch (error) {
    if (refused(error)) return 'lost';
    throw error;
  }
}

(async () => {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    let answer;
    try {
      answer = await run(line.split(' '));
    } catch (error) {
      answer = 'error ' + String(error).replace(/\n/g, ' ');
    }
    process.stdout.write(answer + '\n');
  }
  process.exit(0);
})();
