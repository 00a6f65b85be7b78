// The fence of the driver for Node, with an older and a newer lease of one lock: see tests/drivers/suite, test_fences.
'use strict'
const assert = require('node:assert/strict')
const { connect: dial } = require('node:net')
const { once } = require('node:events')
const { Client, Pool } = require('pg')
const { connect, StaleError, LostError } = require('fencelock')
const { Fence } = require('fencelock/pg')

const { FENCELOCK_URL: url, POSTGRES_URL: connectionString } = process.env
const ADD = `UPDATE account SET balance = balance + 1 WHERE lock = 'job'`
const PATIENCE = '4m'

/** An operator's BREAK, of which the holder hears at its next renewal. */
async function breakLock() {
  const [, host, port] = /:\/\/([^:,]+):([0-9]+)/.exec(url)
  const socket = dial({ host, port: Number(port) })
  socket.write('BREAK job\r\n')
  const [answer] = await once(socket, 'data')
  assert.notEqual(String(answer)[0], '-', String(answer))
  socket.destroy()
}

/** Two leases of one lock, the older one of a client that does not know yet that it is over. */
async function twice(locks, between, then) {
  const other = connect(url)
  const older = await other.acquire('job', { ttl: '1h', wait: PATIENCE })
  await between(older)
  await breakLock()
  const newer = await locks.acquire('job', { wait: PATIENCE })
  await then(older, newer)
  await newer.release()
  await other.close()
}

/** StaleError, with no error of the database inside, which frameworks would repeat. */
function stale(error) {
  assert.ok(error instanceof StaleError, String(error))
  assert.equal(error.cause, undefined)
  assert.equal(error.code, 'FENCELOCK_STALE')
  return true
}

async function attack(locks, db) {
  let old
  const write = (fence) => fence.transaction((client) => client.query(ADD))
  await twice(locks, async (older) => {
    old = await Fence.claim(db, older)
    assert.equal((await write(old)).rowCount, 1)
  }, async (older, newer) => {
    const fence = await Fence.claim(db, newer)
    await assert.rejects(write(old), stale)
    await assert.rejects(Fence.claim(db, older), stale)
    assert.equal((await write(fence)).rowCount, 1)
    await bodies(fence)
  })
}

/** What the function of a transaction may do wrong. */
async function bodies(fence) {
  await assert.rejects(fence.transaction(() => Promise.reject(new RangeError('of the body'))), RangeError)
  await assert.rejects(fence.transaction((client) => client.query('SELECT 1 / 0').catch(() => {})), /rolled back/)
  await assert.rejects(fence.transaction((client) => client.query('wrong')), { code: '42601' })
}

async function main() {
  const locks = connect(url)
  const pool = new Pool({ connectionString, max: 2 })
  pool.on('error', () => {})
  await attack(locks, pool)
  const client = new Client({ connectionString })
  client.on('error', () => {})
  await client.connect()
  await attack(locks, client)

  // No connection is free: the fence waits for one, and the lease is renewed meanwhile.
  const lease = await locks.acquire('job', { wait: PATIENCE })
  const taken = [await pool.connect(), await pool.connect()]
  const claim = Fence.claim(pool, lease)
  assert.equal(await Promise.race([claim, new Promise((resolve) => setTimeout(resolve, 50, 'waits'))]), 'waits')
  for (const c of taken) c.release()
  const fence = await claim

  // The connection dies within the transaction: it does not come back to the pool, and the next one works.
  await assert.rejects(fence.transaction(async (c) => c.query('SELECT pg_terminate_backend(pg_backend_pid())')))
  await assert.rejects(fence.transaction(async (c) => { // also when nothing is under way, and nobody listens
    const { rows: [{ pid }] } = await c.query('SELECT pg_backend_pid() AS pid')
    await pool.query('SELECT pg_terminate_backend($1)', [pid])
    await once(c, 'end')
  }))
  await fence.transaction((c) => c.query(ADD))

  // A lost lease commits nothing.
  const before = await pool.query('SELECT balance FROM account')
  await assert.rejects(fence.transaction(async (c) => {
    await c.query(ADD)
    lease.end(new LostError('job'))
  }), LostError)
  assert.deepEqual((await pool.query('SELECT balance FROM account')).rows, before.rows)
  assert.equal(pool.waitingCount + pool.totalCount - pool.idleCount, 0)
  await Promise.all([pool.end(), client.end(), locks.close()])
}

main().catch((e) => {
  console.error(e)
  process.exit(1)
})
