// ioredis as a driver: see ../run for what each has to do and print.
'use strict';
const fs = require('fs');
const Redis = require('ioredis');

const [ca, addresses, name, password] = process.argv.slice(2);

function connect(address, secret) {
  const [host, port] = address.split(':');
  const c = new Redis({ host, port: Number(port), username: name, password: secret, tls: { ca: fs.readFileSync(ca) },
    retryStrategy: null, maxRetriesPerRequest: 0 });
  c.on('error', () => {});
  return c;
}

const errorOf = (promise) => promise.then(() => '', (e) => String((e.previousErrors && e.previousErrors[0]) || e.message));

async function wrongPassword(address) {
  const c = connect(address, 'wrong');
  const said = new Promise((done) => c.on('error', (e) => done(String(e.message))));
  const asked = errorOf(c.call('PING'));
  const error = await Promise.race([said, asked]);
  c.disconnect();
  return error;
}

async function cluster(address) {
  const [host, port] = address.split(':');
  const c = new Redis.Cluster([{ host, port: Number(port) }], { clusterRetryStrategy: null, redisOptions: { username: name, password,
    tls: { ca: fs.readFileSync(ca) }, maxRetriesPerRequest: 0 } });
  const error = await new Promise((done) => c.on('error', (e) => done(String((e.lastNodeError || e).message))));
  c.disconnect();
  return error;
}

(async () => {
  for (const address of addresses.split(',')) {
    const c = connect(address, password);
    const acquire = (lock, owner) => c.call('ACQUIRE', lock, 'TTL', 60000, 'OWNER', owner);
    const token = await acquire('a-node', 'driver-of-node-012345');
    console.log(JSON.stringify({
      token,
      again: await acquire('a-node', 'driver-of-node-012345'),
      held: (await acquire('a-node', 'another-one-0123456')) === null,
      renewed: await c.call('RENEW', 'a-node', token),
      whoami: String(await c.call('ACL', 'WHOAMI')),
      forbidden: await errorOf(acquire('b', 'driver-of-node-012345')),
      released: await c.call('RELEASE', 'a-node', token),
      wrong: await wrongPassword(address),
      cluster: await cluster(address),
    }));
    c.disconnect();
  }
  process.exit(0);
})().catch((e) => { console.error(e); process.exit(1); });
