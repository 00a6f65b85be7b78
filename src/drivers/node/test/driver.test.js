'use strict'
const assert = require('node:assert/strict')
const { spawnSync } = require('node:child_process')
const { connect: dial, createServer } = require('node:net')
const { after, before, test } = require('node:test')
const fencelock = require('fencelock')
const { startNode } = require('fencelock/testing')
const { now } = require('../dist/clock')

const { LostError, NotAcquiredError, ReleasedError } = fencelock
const LONG = '1h'
let node
let locks

before(async () => {
  node = await startNode()
  locks = fencelock.connect(node.url)
})
after(async () => {
  await locks.close()
  await node.stop()
})

const free = async (name) => (await locks.acquire(name, { ttl: LONG, wait: '4m' })).release()

test('with: the lock is held by the body, and free after it', async () => {
  const mine = new Error('of the body')
  const ran = locks.with('with', async (lease, signal) => {
    lease.check()
    assert.ok(lease.token >= 1 && lease.name === 'with' && lease.state === 'safe' && lease.remaining > 0 && !signal.aborted)
    await assert.rejects(locks.acquire('with'), NotAcquiredError)
    throw mine
  })
  await assert.rejects(ran, mine)
  const lease = await locks.acquire('with')
  await lease.release()
  await lease.release()
  assert.ok(lease.lost.reason instanceof ReleasedError && lease.remaining === 0 && lease.state === 'lost')
  assert.equal(await locks.with('with', { value: 'v' }, () => 7), 7)
})

test('a lease is released by its block, and an error of the block is not hidden', async () => {
  const lease = await locks.acquire('block')
  await lease[Symbol.asyncDispose]()
  await free('block')
  const lost = await locks.acquire('block')
  lost.end(new LostError('block')) // as if it were lost
  await lost[Symbol.asyncDispose]()
  await assert.rejects(lost.release(), LostError)
})

test('a signal ends a wait, and no lock stays', async () => {
  const held = await locks.acquire('wait', { ttl: LONG })
  const other = fencelock.connect(node.url)
  const [controller, mine] = [new AbortController(), new Error('enough')]
  const [here, there] = [locks, other].map((c) => c.acquire('wait', { ttl: LONG, wait: Infinity, signal: controller.signal }))
  while ((await count('waiters')) !== 1) await new Promise((resolve) => setTimeout(resolve, 5))
  controller.abort(mine)
  await assert.rejects(here, mine)
  await assert.rejects(there, mine)
  await assert.rejects(locks.acquire('wait', { signal: controller.signal }), mine)
  await held.release()
  await free('wait')
  await other.close()

  async function count(key) {
    const { Connection } = require('../dist/connection')
    const [, host, port] = /:\/\/(.*):(.*)/.exec(node.url)
    const c = new Connection({ host, port: Number(port), user: '', password: '', label: 'test', tls: undefined })
    const [show] = await c.exchange([['SHOW', 'wait']])
    c.end(new Error('done'))
    return require('../dist/resp').field(show, key)
  }
})

test('the body hears of the loss, and of the caller', async () => {
  for (const lose of [(lease) => lease.end(new LostError('heard')), (_, controller) => controller.abort(new Error('of the caller'))]) {
    const controller = new AbortController()
    const reason = await locks.with('heard', { signal: controller.signal, wait: '4m' }, async (lease, signal) => {
      setImmediate(lose, lease, controller)
      await new Promise((resolve) => signal.addEventListener('abort', resolve))
      return signal.reason
    })
    assert.match(reason.message, /is lost|of the caller/)
    if (reason instanceof LostError) break
  }
})

test('an event loop that is blocked past the lease says so at once', async () => {
  const lease = await locks.acquire('blocked', { ttl: 100 })
  const signal = lease.lost
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 150)
  assert.equal(signal.aborted, false)
  assert.throws(() => lease.check(), LostError)
  assert.equal(signal.aborted, true)
})

test('a lease counts from before its request, however late the answer is', async () => {
  const [, host, port] = /:\/\/(.*):(.*)/.exec(node.url)
  const [late, ttl] = [300, 60000]
  const sockets = []
  let heard = 0 // when the last request for a session had been sent
  const proxy = createServer((near) => {
    const far = dial({ host, port: Number(port) })
    sockets.push(near, far)
    near.on('data', (bytes) => {
      if (bytes.includes('OPEN')) heard = now()
      far.write(bytes)
    })
    far.on('data', (bytes) => setTimeout(() => near.write(bytes), late))
    for (const s of [near, far]) s.on('error', () => {})
  })
  await new Promise((resolve) => proxy.listen(0, '127.0.0.1', resolve))
  const own = fencelock.connect(`fencelock://127.0.0.1:${proxy.address().port}`)
  try {
    const lease = await own.acquire('late', { ttl, wait: '4m' })
    const until = lease.remaining + now()
    assert.ok(heard > 0 && until <= heard + ttl - ttl / 100 - 2 + 1, `${until} and ${heard}`) // 1: the clock may have moved on in between
  } finally {
    await own.close()
    for (const s of sockets) s.destroy()
    proxy.close()
  }
})

test('elect: stands again after a loss, and resigns', async () => {
  const terms = []
  const result = await locks.elect('boss', async (lease, signal) => {
    terms.push(lease.token)
    if (terms.length > 1) return 'done'
    setImmediate(() => lease.end(new LostError('boss')))
    await new Promise((resolve) => signal.addEventListener('abort', resolve))
    throw signal.reason
  }, { ttl: 500 })
  assert.deepEqual([result, terms.length], ['done', 2])
  assert.ok(terms[1] > terms[0])
  await assert.rejects(locks.elect('boss', () => { throw new RangeError('mine') }), /mine/)
  const held = await locks.acquire('boss', { ttl: LONG })
  await assert.rejects(locks.elect('boss', () => 1, { signal: AbortSignal.timeout(50) }), { name: 'TimeoutError' })
  await held.release()
})

test('holder', async () => {
  assert.equal(await locks.holder('held'), undefined)
  const lease = await locks.acquire('held', { value: 'me' })
  const { token, value, owner, label } = await locks.holder('held')
  assert.deepEqual([token, value, owner !== '', label !== ''], [lease.token, 'me', true, true])
  await lease.release()
})

test('watch ends with its loop', async () => {
  for await (const e of locks.watch('watched')) {
    if (e.kind === 'resync') void locks.with('watched', () => {})
    if (e.kind === 'released') break
  }
  assert.throws(() => locks.watch(''), TypeError)
})

test('close ends leases and waits', async () => {
  const own = fencelock.connect(node.url)
  const lease = await own.acquire('closed', { ttl: LONG })
  const waits = [own.acquire('closed', { ttl: LONG, wait: Infinity }), own.acquire('closed', { ttl: '2h', wait: Infinity })]
  await Promise.all([own.close(), ...waits.map((wait) => assert.rejects(wait, fencelock.ClosedError))])
  assert.ok(lease.lost.reason instanceof LostError)
  await assert.rejects(own.acquire('closed'), fencelock.ClosedError)
  await own.close()
  await free('closed')
})

test('a process without a lease ends by itself; one that holds a lease goes on', () => {
  const program = (body) => spawnSync(process.execPath, ['-e', `const locks = require('fencelock').connect(${JSON.stringify(node.url)}); ${body}`], { encoding: 'utf8' })
  const ended = program(`locks.with('ends', () => console.log('done'))`)
  assert.deepEqual([ended.status, ended.stdout, ended.stderr], [0, 'done\n', ''])
  const held = program(`locks.acquire('goes on').then(() => setTimeout(() => process.exit(7), 50).unref())`)
  assert.equal(held.status, 7, held.stderr)
})

test('two copies, by require and by import, are one', async () => {
  const imported = await import('fencelock')
  assert.equal(imported.LostError, LostError)
  assert.equal((await import('fencelock/http')).Marks, require('fencelock/http').Marks)
})

test('a thousand leases are one session, and cost less than a hundredth of a core', async () => {
  const many = fencelock.connect(node.url)
  const held = await Promise.all(Array.from({ length: 1000 }, (_, i) => many.acquire(`idle-${i}`, { ttl: '2h', wait: '4m' })))
  for (let share = 1; share >= 0.01;) { // what the thousand have left behind is collected first
    const [used, began] = [process.cpuUsage(), performance.now()]
    await new Promise((resolve) => setTimeout(resolve, 2000))
    const { user, system } = process.cpuUsage(used)
    share = (user + system) / 1000 / (performance.now() - began)
  }
  assert.ok(held.every((lease) => lease.state === 'safe'))
  await many.close()
})
