// Workers of BullMQ with the program of the driver's page, and a Redis server.
'use strict'
const assert = require('node:assert/strict')
const { spawn } = require('node:child_process')
const { once } = require('node:events')
const { mkdtempSync, rmSync } = require('node:fs')
const { createServer } = require('node:net')
const { tmpdir } = require('node:os')
const { join } = require('node:path')
const { after, before, test } = require('node:test')
const { DelayedError, Queue, QueueEvents, Worker } = require('bullmq')
const { NotAcquiredError } = require('fencelock')
const { Fence } = require('fencelock/pg')
const { account, lab, ofThePage, overtake } = require('./lab')

let here
let redis
before(async () => {
  here = await lab()
  redis = await startRedis()
})
after(async () => {
  await here.end()
  await redis.stop()
})

async function startRedis() {
  const free = createServer().listen(0, '127.0.0.1')
  await once(free, 'listening')
  const { port } = free.address()
  free.close()
  await once(free, 'close')
  const dir = mkdtempSync(join(tmpdir(), 'fencelock-redis-'))
  const child = spawn('redis-server', ['--port', port, '--bind', '127.0.0.1', '--dir', dir, '--save', ''], { stdio: 'ignore' })
  const ended = once(child, 'close')
  return { connection: { host: '127.0.0.1', port, maxRetriesPerRequest: null }, stop: async () => {
    child.kill('SIGKILL')
    await ended
    rmSync(dir, { recursive: true, force: true })
  } }
}

/** Two workers, of one process each in real life, whose jobs are booked by `book`. */
async function workers(book, run) {
  const names = ['locks', 'pool', 'connection', 'book', 'Fence', 'NotAcquiredError', 'DelayedError', 'Worker']
  const made = []
  class Counted extends Worker {
    constructor(...words) {
      super(...words)
      made.push(this)
    }
  }
  const program = ofThePage('A job of BullMQ', names)
  const { connection } = redis
  for (let i = 0; i < 2; i++) await program(here.locks, here.pool, connection, book, Fence, NotAcquiredError, DelayedError, Counted)
  const [queue, events] = [new Queue('accounts', { connection }), new QueueEvents('accounts', { connection })]
  try {
    await events.waitUntilReady()
    await run(queue, events)
  } finally {
    for (const x of [...made, queue, events]) await x.close()
  }
}

const add = (client, { id }) => client.query('UPDATE account SET balance = balance + 1 WHERE lock = $1', [`account/${id}`])

test('jobs of one lock at the same time: each is done once', async () => {
  const balance = await account(here, 'account/7')
  let inside = 0
  let most = 0
  const book = async (client, data) => {
    most = Math.max(most, ++inside)
    await add(client, data)
    inside--
  }
  await workers(book, async (queue, events) => {
    const jobs = await queue.addBulk([1, 2, 3, 4].map((n) => ({ name: `add ${n}`, data: { id: 7 } })))
    for (const job of jobs) await job.waitUntilFinished(events)
  })
  assert.deepEqual([await balance(), most], [4, 1])
})

test('a stale job has written nothing; with attempts it runs again from its start, under a new token', async () => {
  const balance = await account(here, 'account/8')
  let runs = 0
  const book = async (client, data) => {
    if (++runs % 2 === 1) {
      const newer = await overtake(here, 'account/8')
      await newer.end()
    }
    await add(client, data)
  }
  await workers(book, async (queue, events) => {
    const once = await queue.add('add', { id: 8 })
    await assert.rejects(once.waitUntilFinished(events), /a newer holder of the lock has been at the storage/)
    assert.deepEqual([runs, await balance()], [1, 0])
    runs = 0
    const twice = await queue.add('add', { id: 8 }, { attempts: 2 })
    await twice.waitUntilFinished(events)
    assert.deepEqual([runs, await balance()], [2, 1])
  })
})
