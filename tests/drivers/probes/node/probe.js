// The probe of the driver for Node: see tests/drivers/suite. It takes commands from standard input and prints what it believes.
'use strict'
const { readFileSync, writeSync } = require('node:fs')
const { createInterface } = require('node:readline')
const fencelock = require('fencelock')

const leases = new Map()
const cancels = new Map()

// Milliseconds of CLOCK_BOOTTIME, to a fraction: /proc/uptime has hundredths of a second, so begin where it steps.
const ahead = (() => {
  const uptime = () => Number.parseFloat(readFileSync('/proc/uptime', 'latin1')) * 1000
  let best = -Infinity
  for (let steps = 0; steps < 3; steps++) {
    const was = uptime()
    let before = performance.now()
    let t = uptime()
    for (; t === was; t = uptime()) before = performance.now()
    best = Math.max(best, t - performance.now())
    if (performance.now() - before > 1) steps-- // it was interrupted between the two clocks
  }
  return best
})()
const bootMs = () => performance.now() + ahead

// At once, and never from a queue: a process that is stopped has said what it was to say.
const say = (id, event, more = {}) => writeSync(1, JSON.stringify({ at: bootMs(), id, event, ...more }) + '\n')

function wordOf(error) {
  const words = [
    ['NotAcquiredError', 'notacquired'], ['UncertainError', 'uncertain'], ['UnavailableError', 'unavailable'], ['LostError', 'lost'],
    ['ReleasedError', 'released'], ['ClosedError', 'closed'], ['AbortError', 'uncertain'], ['TypeError', 'argument'], ['RangeError', 'argument'],
  ]
  if (error === undefined) return null
  if (error instanceof fencelock.RefusedError) return error.word
  return words.find(([name]) => error.name === name)?.[1] ?? String(error)
}

function options(words, signal) {
  const o = { signal }
  for (const word of words) {
    const [key, value] = word.split('=')
    o[key] = key === 'shared' ? true : key === 'also' ? value.split(',') : Number(value)
  }
  return o
}

function begin(id) {
  const controller = new AbortController()
  cancels.set(id, controller)
  return controller.signal
}

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms))
const ended = (lease) => (lease.lost.aborted ? lease.lost.reason : undefined)

/** Notes the last moment at which the lease was believed in, every few milliseconds, and tells of the loss. */
async function believe(id, lease) {
  let believed = 0 // it may have been stopped before its first look
  for (;;) {
    const at = bootMs()
    if (ended(lease)) break
    believed = at
    await sleep(5)
  }
  say(id, 'ended', { why: wordOf(ended(lease)), believed, noticed: bootMs() })
}

async function work(locks, id, name, url, n, more) {
  const { Pool } = require('pg')
  const { Fence } = require('fencelock/pg')
  const pool = new Pool({ connectionString: url })
  pool.on('error', () => {})
  for (let i = 0; i < n; i++) {
    let committing = false
    try {
      await locks.with(name, options(more), async (lease) => {
        const fence = await Fence.claim(pool, lease)
        const { rows } = await pool.query('SELECT balance FROM account WHERE lock = $1', [name])
        committing = true
        await fence.transaction((client) => client.query('UPDATE account SET balance = $1 WHERE lock = $2', [rows[0].balance + 1, name]))
      })
      say(id, 'added')
    } catch (e) {
      if (e instanceof fencelock.StaleError) say(id, 'stale')
      else say(id, committing ? 'perhaps' : 'not added', { text: String(e) })
    }
  }
  await pool.end()
  say(id, 'worked')
}

const commands = {
  async acquire(locks, id, name, ...more) {
    try {
      const lease = await locks.acquire(name, options(more, begin(id)))
      leases.set(id, lease)
      say(id, 'acquired', { token: lease.token })
      await believe(id, lease)
    } catch (e) {
      say(id, 'failed', { error: wordOf(e), text: String(e) })
    }
  },
  async elect(locks, id, name, ...more) {
    let error
    try {
      await locks.elect(name, async (lease, signal) => {
        say(id, 'leads', { token: lease.token })
        void believe(id, lease)
        await new Promise((resolve) => (signal.aborted ? resolve() : signal.addEventListener('abort', resolve)))
        signal.throwIfAborted()
      }, options(more, begin(id)))
    } catch (e) {
      error = e
    }
    say(id, 'resigned', { error: wordOf(error) })
  },
  async watch(locks, id, pattern) {
    for await (const { kind, lock, token } of locks.watch(pattern, { signal: begin(id) })) say(id, 'event', { kind, lock, token })
    say(id, 'unwatched')
  },
  async many(locks, id, prefix, n, ...more) {
    let [acquired, lost, next] = [0, 0, 0]
    await Promise.all(Array.from({ length: 32 }, async () => {
      while (next < Number(n)) {
        const lease = await locks.acquire(`${prefix}-${next++}`, options(more))
        acquired++
        lease.lost.addEventListener('abort', () => lost++)
      }
    }))
    say(id, 'many', { acquired })
    for (;;) {
      await sleep(200)
      say(id, 'count', { lost })
    }
  },
  work: (locks, id, name, url, n, ...more) => work(locks, id, name, url, Number(n), more),
  cancel: (_, id) => cancels.get(id).abort(),
  async release(_, id) {
    const began = bootMs()
    let error
    await leases.get(id).release().catch((e) => (error = e))
    say(id, 'released', { error: wordOf(error), took: bootMs() - began })
  },
  state(_, id) {
    const lease = leases.get(id)
    say(id, 'state', { state: lease.state, remaining: lease.remaining, error: wordOf(ended(lease)) })
  },
  threads: (_, id) => say(id, 'threads', { n: process.getActiveResourcesInfo().filter((kind) => kind !== 'Timeout').length }),
  async close(locks, id) {
    await locks.close()
    say(id, 'closed', { error: null })
  },
  die: () => process.kill(process.pid, 'SIGKILL'),
}

process.on('uncaughtException', (e) => say('', 'died', { text: String(e && e.stack) }))
const ca = process.env.PROBE_CA
const locks = fencelock.connect(process.argv[2], {
  tls: ca ? { ca: readFileSync(ca) } : undefined, log: (message, error) => console.error(message, error),
})
say('', 'ready')
createInterface({ input: process.stdin }).on('line', (line) => {
  const [command, ...words] = line.split(' ')
  void commands[command](locks, ...words)
}).on('close', () => process.exit(0))
