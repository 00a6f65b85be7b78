// What the tests of frameworks share: a node of the service, a database with the guard, and the programs of the driver's page.
'use strict'
const assert = require('node:assert/strict')
const { readFileSync } = require('node:fs')
const { connect: dial } = require('node:net')
const { once } = require('node:events')
const { Pool } = require('pg')
const fencelock = require('fencelock')
const { Fence } = require('fencelock/pg')
const { startNode } = require('fencelock/testing')

const PATIENCE = '4m'

/** The program under this heading of the page, as a function of what it names. */
function ofThePage(heading, names, more = '') {
  const section = readFileSync(process.env.PAGE, 'utf8').split(/^## /m).find((text) => text.startsWith(heading))
  const [, program] = /^```js\n([^]*?)^```/m.exec(section)
  const Program = Object.getPrototypeOf(async () => {}).constructor
  return new Program(...names, program + more)
}

/** The locks of a node of its own, and a pool. */
async function lab() {
  const node = await startNode()
  const pool = new Pool({ connectionString: process.env.POSTGRES_URL })
  await pool.query('CREATE TABLE IF NOT EXISTS account (lock text PRIMARY KEY, balance int)')
  await pool.query("SELECT fence.protect('account', 'lock')")
  const locks = fencelock.connect(node.url)
  const others = [] // a lease keeps its process alive, also after a test that failed
  const end = async () => {
    for (const other of [locks, ...others]) await other.close()
    await pool.end()
    await node.stop()
  }
  return { node, pool, locks, others, end }
}

/** Takes the lock away from its holder, who hears of that at the next renewal, and lets a newer holder claim. */
async function overtake({ node, pool, others }, name) {
  const [, host, port] = /:\/\/(.*):(.*)/.exec(node.url)
  const socket = dial({ host, port: Number(port) })
  socket.write(`BREAK ${name}\r\n`)
  const [answer] = await once(socket, 'data')
  assert.notEqual(String(answer)[0], '-', String(answer))
  socket.destroy()
  const other = fencelock.connect(node.url)
  others.push(other)
  const fence = await Fence.claim(pool, await other.acquire(name, { ttl: '1h', wait: PATIENCE }))
  return { fence, end: () => other.close() }
}

/** Makes the account of this lock. Gives a function that tells its balance. */
async function account({ locks, pool }, name) {
  await locks.with(name, { wait: PATIENCE }, async (lease) => {
    const fence = await Fence.claim(pool, lease)
    await fence.transaction((client) => client.query('INSERT INTO account VALUES ($1, 0)', [name]))
  })
  return async () => (await pool.query('SELECT balance FROM account WHERE lock = $1', [name])).rows[0].balance
}

module.exports = { PATIENCE, account, lab, ofThePage, overtake }
