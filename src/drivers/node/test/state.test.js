'use strict'
const assert = require('node:assert/strict')
const { existsSync, readFileSync, readdirSync } = require('node:fs')
const { join } = require('node:path')
const { spawnSync } = require('node:child_process')
const { test } = require('node:test')
const { LeaseState } = require('../dist/state')
const { Wanted } = require('../dist/options')
const { parse } = require('../dist/url')
const { Reader, ReplyError, encode, field } = require('../dist/resp')
const { now, clockName } = require('../dist/clock')
const { headers, Marks } = require('fencelock/http')
const { StaleError } = require('fencelock')

test('the vectors of the C lease', (t) => {
  const file = process.env.FENCELOCK_VECTORS ?? join(__dirname, '../../../../tests/vectors/lease/lease.json')
  if (!existsSync(file)) return t.skip('the vectors are not beside the driver')
  let ran = 0
  for (const { name, events } of JSON.parse(readFileSync(file, 'utf8'))) {
    if (events[0].reserve_ms || events[0].max_hold_ms) continue // this driver has not these
    ran++
    let lease
    for (const e of events) {
      if (e.event === 'granted') lease = new LeaseState(e.sent_ms, e.ttl_ms)
      if (e.event === 'renewal_sent') lease.renewalBegan()
      if (e.event === 'renewal_answered') {
        const outcome = { OK: 'renewed', ENOTHELD: 'gone', ENOSESSION: 'gone' }[e.status] ?? 'unknown'
        lease.renewalEnded(e.at_ms, outcome, e.sent_ms)
      }
      if (e.event === 'given_back') lease.end()
      const state = lease.at(e.at_ms)
      const is = { state, remaining_ms: lease.remaining(e.at_ms), renew: lease.wantsRenewal(e.at_ms) }
      assert.deepEqual(is, { state: e.then.state, remaining_ms: e.then.remaining_ms, renew: e.then.request === 'renew' }, `${name}, ${e.event} at ${e.at_ms}`)
      if (state !== 'lost' && e.then.next_ms !== null) assert.equal(lease.next(), e.then.next_ms, `${name}, ${e.event} at ${e.at_ms}`)
    }
  }
  assert.ok(ran > 5, `${ran} cases`)
})

test('attempts after the first have a number, by which the service knows one that comes late', () => {
  const wanted = new Wanted('lock', {})
  assert.deepEqual(wanted.words('owner', 1, 0), ['ACQUIRE', 'lock', 'SESSION', 'owner'])
  assert.deepEqual(wanted.words('owner', 2, 1000), ['ACQUIRE', 'lock', 'SESSION', 'owner', 'WAIT', 1000, 'ATTEMPT', 2])
})

test('arguments, at their limits and beyond', () => {
  for (const o of [{ ttl: 50 }, { ttl: '24h' }, { ttl: '1.5s' }, { permits: 1000000 }, { value: 'v'.repeat(1024) }, { also: Array(15).fill('x') }, { wait: Infinity }]) {
    new Wanted('n'.repeat(255), o)
  }
  const wrong = [
    { ttl: 49 }, { ttl: 86400001 }, { ttl: '10' }, { ttl: 'x s' }, { wait: -1 }, { wait: NaN }, { permits: 0 }, { permits: 1000001 }, { permits: 1.5 },
    { value: 'v'.repeat(1025) }, { also: Array(16).fill('x') }, { also: [''] }, { shared: true, permits: 2 }, { shared: true, also: ['x'] },
  ]
  for (const o of wrong) assert.throws(() => new Wanted('n', o), /^(Range|Type)Error: fencelock: /, JSON.stringify(o))
  for (const name of ['', 'n'.repeat(256), '\u00e4'.repeat(128)]) assert.throws(() => new Wanted(name, {}), RangeError)
})

test('URLs', () => {
  const of = (text) => {
    const { addresses, ...rest } = parse(text)
    return { ...rest, addresses: addresses.map((a) => `${a.host} ${a.port}`) }
  }
  const plain = { tls: false, user: '', password: '' }
  assert.deepEqual(of('fencelock://a:1'), { ...plain, addresses: ['a 1'] })
  assert.deepEqual(of('fencelock://a:1,[::1]:65535/'), { ...plain, addresses: ['a 1', '::1 65535'] })
  assert.deepEqual(of('fencelocks://u:p%40%3a@a:1'), { tls: true, user: 'u', password: 'p@:', addresses: ['a 1'] })
  assert.equal(of('fencelock://' + Array(16).fill('a:1').join()).addresses.length, 16)
  for (const text of ['', 'redis://a:1', 'a:1', 'fencelock://', 'fencelock://a', 'fencelock://a:0', 'fencelock://a:65536', 'fencelock://:1', 'fencelock://a:1,',
    'fencelock://u@a:1', 'fencelock://u:@a:1', 'fencelock://:p@a:1', 'fencelock://u:%4@a:1', 'fencelock://' + Array(17).fill('a:1').join()]) {
    assert.throws(() => parse(text), TypeError, text)
  }
  assert.throws(() => parse('fencelock://user:secret@nowhere'), (e) => !e.message.includes('secret'))
})

test('answers that come in pieces', () => {
  const bytes = Buffer.from('+OK\r\n:-12\r\n$5\r\n\u00e4bc\n\r\n*3\r\n$-1\r\n*-1\r\n*2\r\n+a\r\n:1\r\n-NOPERM no\r\n$0\r\n\r\n', 'utf8')
  const want = ['OK', -12, '\u00e4bc\n', [null, null, ['a', 1]], new ReplyError('NOPERM no'), '']
  for (let size = 1; size <= bytes.length; size++) {
    const reader = new Reader()
    const got = []
    for (let at = 0; at < bytes.length; at += size) {
      reader.feed(bytes.subarray(at, at + size))
      for (let reply = reader.next(); reply !== undefined; reply = reader.next()) got.push(reply)
    }
    assert.deepEqual(got, want)
  }
  for (const wrong of ['x\r\n', ':1x\r\n', '$9999999999999999999999\r\n', '*1\r\n'.repeat(9) + '+x\r\n']) {
    const reader = new Reader()
    reader.feed(Buffer.from(wrong))
    assert.throws(() => reader.next(), Error, wrong)
  }
  assert.equal(encode([['A', '\u00e4', 1], ['B']]), '*3\r\n$1\r\nA\r\n$2\r\n\u00e4\r\n$1\r\n1\r\n*1\r\n$1\r\nB\r\n')
  assert.equal(field(['a', 'b', 'b', 2], 'b'), 2)
})

test('the clock goes on in a suspension, and never back', (t) => {
  let last = now()
  for (let i = 0; i < 2000; i++) {
    const t = now()
    assert.ok(t >= last)
    last = t
  }
  if (clockName !== 'CLOCK_BOOTTIME') return t.skip('this system has no such clock')
  const ahead = 86400 // as after a suspension of a day, of which Node's own clock knows nothing
  const code = `console.log(require(${JSON.stringify(join(__dirname, '../dist/clock'))}).now())`
  const said = spawnSync('unshare', ['--time', '--fork', '--boottime', String(ahead), process.execPath, '-e', code], { encoding: 'utf8' })
  if (said.error || said.stderr.startsWith('unshare:')) return t.skip('no time namespace can be made here')
  assert.ok(Number(said.stdout) >= last + ahead * 1000, said.stdout + said.stderr)
})

test('a suspension between two looks at the clock', () => {
  const [fs, clock] = [require('node:fs'), require.resolve('../dist/clock')]
  const real = fs.readFileSync
  let slept = 0
  fs.readFileSync = (path, ...more) => (path === '/proc/uptime' ? String(1000 + performance.now() / 1000 + slept) : real(path, ...more))
  try {
    delete require.cache[clock]
    const fresh = require(clock)
    const before = fresh.now()
    slept = 60
    const after = fresh.now()
    assert.ok(after - before >= 60000 && after - before < 61000, String(after - before))
    assert.ok(fresh.now() - after < 1000)
  } finally {
    fs.readFileSync = real
    delete require.cache[clock]
  }
})

test('headers of a service', () => {
  const marks = new Marks()
  const [older, newer] = [1, 2].map((token) => headers({ name: 'lock', token }))
  for (const h of [older, newer, newer]) marks.admit(new Headers(h))
  assert.throws(() => marks.admit(new Headers(older)), StaleError)
  assert.throws(() => marks.admit({ 'fencing-lock': 'lock', 'fencing-token': '1' }), StaleError)
  for (const wrong of [{}, { 'fencing-lock': 'x', 'fencing-token': '0' }, { 'fencing-lock': 'x', 'fencing-token': String(2 ** 53) }]) {
    assert.throws(() => marks.admit(wrong), TypeError)
  }
})

test('no type is any', () => {
  const dist = join(__dirname, '../dist')
  for (const file of readdirSync(dist).filter((name) => name.endsWith('.d.ts'))) {
    const text = readFileSync(join(dist, file), 'utf8').replace(/\/\*[^]*?\*\//g, '')
    assert.doesNotMatch(text, /\bany\b/, file)
  }
})
