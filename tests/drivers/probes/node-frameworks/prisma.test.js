// Prisma's own client, with its adapter for PostgreSQL: STALE is a StaleError, and what repeats a transaction does not repeat it.
'use strict'
const assert = require('node:assert/strict')
const { after, before, test } = require('node:test')
const { PrismaPg } = require('@prisma/adapter-pg')
const { PrismaClient } = require('@prisma/client')
const { StaleError } = require('fencelock')
const { translate } = require('fencelock/pg')
const { PATIENCE, account, lab, ofThePage, overtake } = require('./lab')

let here
let prisma
before(async () => {
  here = await lab()
  prisma = new PrismaClient({ adapter: new PrismaPg({ connectionString: process.env.POSTGRES_URL }) })
})
after(async () => {
  await prisma.$disconnect()
  await here.end()
})

/** The loop of Prisma's pages: it repeats a transaction that failed by a conflict. Gives the number of runs. */
async function repeated(body) {
  for (let runs = 1; ; runs++) {
    try {
      await prisma.$transaction(body, { isolationLevel: 'Serializable', timeout: 240000, maxWait: 240000 })
      return { runs }
    } catch (e) {
      if (e.code !== 'P2034') return { runs, error: translate(e) }
    }
  }
}

const use = (tx, lease) => tx.$executeRaw`SELECT fence.use(${lease.name}, ${BigInt(lease.token)})`
const add = (tx, name) => tx.account.update({ where: { lock: name }, data: { balance: { increment: 1 } } })

test('the program of the page', async () => {
  const { locks } = here
  const balance = await account(here, 'account/42')
  const program = ofThePage('Prisma', ['locks', 'prisma', 'translate'])
  await program(locks, prisma, translate)
  assert.equal(await balance(), 10)
  let newer
  const late = { $executeRaw: (...words) => prisma.$executeRaw(...words), $transaction: async (body) => {
    newer = await overtake(here, 'account/42') // after the claim
    return prisma.$transaction(body)
  } }
  await assert.rejects(program(locks, late, translate), StaleError)
  assert.equal(await balance(), 10)
  await newer.end()
})

test('a loop over conflicts repeats a conflict, and no STALE', async () => {
  const { locks } = here
  const balance = await account(here, 'repeated')
  const lease = await locks.acquire('repeated', { ttl: '1h', wait: PATIENCE })
  await prisma.$executeRaw`CALL fence.claim(${lease.name}, ${BigInt(lease.token)})`
  let first = true
  const conflict = await repeated(async (tx) => {
    await use(tx, lease)
    await tx.account.findMany()
    if (first) await prisma.$transaction(async (other) => { await use(other, lease); await add(other, lease.name) })
    first = false
    await add(tx, lease.name)
  })
  assert.deepEqual([conflict, await balance()], [{ runs: 2 }, 2])
  const newer = await overtake(here, 'repeated')
  const stale = await repeated(async (tx) => {
    await use(tx, lease)
    await add(tx, lease.name)
  })
  assert.ok(stale.error instanceof StaleError && stale.error.cause === undefined, String(stale.error))
  assert.deepEqual([stale.runs, await balance()], [1, 2])
  await newer.end()
})
