import { basename } from 'node:path'
import type { ConnectionOptions } from 'node:tls'
import { debuglog } from 'node:util'
import { now } from './clock'
import { ClosedError, NotAcquiredError, RefusedError, UncertainError, UnavailableError, isWord } from './errors'
import { Lease } from './lease'
import { ATTEMPT_FIRST_MS, Nodes } from './nodes'
import { Wanted, type AcquireOptions } from './options'
import { field, numberOf, textOf } from './resp'
import { Session, isOverError, type Log } from './session'
import { parse } from './url'
import { onAbort, rest, type Limit } from './wait'
import { events, type LockEvent } from './watch'

const PATIENCE_MS = 10000 // for an answer, on top of the wait
const WAIT_AT_ONCE_MS = 24 * 3600 * 1000 // the longest wait that one request may ask for
const CLOSE_MS = 2000
const STAND_AGAIN_MS = 1000

export interface ConnectOptions {
  /** Certificates for fencelocks:// URLs, as of tls.connect(). By default Node's authorities are trusted. */
  tls?: ConnectionOptions | undefined
  /** Gets what no call throws: failed renewals. By default the environment variable NODE_DEBUG=fencelock shows them. */
  log?: Log | undefined
}

/** What runs under a lock. signal: aborts when the lock is lost, or with the caller's signal. */
export type Body<T> = (lease: Lease, signal: AbortSignal) => Promise<T> | T

/** Who holds a lock, as the service knows it. */
export interface Holder {
  token: number
  owner: string
  /** Names its process. */
  label: string
  /** What it gave as `value`. */
  value: string
  ageMs: number
}

/** Reads the URL: fencelock://HOST:PORT,HOST:PORT, or fencelocks://USER:PASSWORD@HOST:PORT for TLS and a login. It connects to nobody yet. */
export function connect(url: string, options: ConnectOptions = {}): Client {
  return new Client(url, options)
}

/** One for each process: all its leases of one TTL are one session at the service, and so one renewal. */
export class Client implements AsyncDisposable {
  readonly #nodes: Nodes
  readonly #label = `${basename(process.argv[1] ?? 'node')}-${process.pid}`.replace(/[^!-~]/g, '_').slice(0, 64)
  readonly #log: Log
  #closed = false
  #sessions = new Map<number, Session[]>() // by TTL

  /** @internal */
  constructor(url: string, options: ConnectOptions) {
    const debug = debuglog('fencelock')
    this.#log = options.log ?? ((message, error) => debug('%s: %o', message, error))
    this.#nodes = new Nodes(parse(url), options.tls ?? {}, this.#label)
  }

  /** Takes the lock. Throws NotAcquiredError when others held it for the whole wait, UnavailableError when no node served for ten seconds
   * beyond the wait, RefusedError, or the reason of the signal. Whatever it throws, nothing stays held: an attempt without an answer is
   * settled in the background. */
  async acquire(name: string, options: AcquireOptions = {}): Promise<Lease> {
    const wanted = new Wanted(name, options)
    const { signal } = options
    signal?.throwIfAborted()
    const end = now() + wanted.wait
    const left = (): number => Math.min(Math.max(end - now(), 0), WAIT_AT_ONCE_MS)
    try {
      return await this.#acquire(wanted, left, { end: end + PATIENCE_MS, signal })
    } catch (e) {
      if (e instanceof UncertainError || e instanceof UnavailableError || e instanceof NotAcquiredError) signal?.throwIfAborted()
      throw e
    }
  }

  async #acquire(wanted: Wanted, left: () => number, limit: Limit): Promise<Lease> {
    const avoid = new Set<Session>()
    for (;;) {
      const session = await this.#enter(wanted, avoid, left, limit)
      const token = await this.#take(session, wanted, avoid, left, limit)
      if (token !== undefined && token !== 0) {
        if (session.isLost()) continue // and its grants with it
        return this.#adopt(session, wanted, token, limit)
      }
      session.vacate(wanted.names)
      session.look()
      if (token === 0 && left() === 0) throw new NotAcquiredError(wanted.name)
    }
  }

  /** The token; 0: others have the lock; undefined: ask again, in another session. */
  async #take(session: Session, wanted: Wanted, avoid: Set<Session>, left: () => number, limit: Limit): Promise<number | undefined> {
    try {
      return await session.take(wanted, left, limit)
    } catch (e) {
      if (isWord(e, 'DEADLOCK')) { // another lease of this process is in the circle, but not its holder: the owner is the lease
        avoid.add(session)
        return undefined
      }
      if (isOverError(e)) {
        session.over()
        return undefined
      }
      if (e instanceof UncertainError) void session.settle(wanted)
      else {
        session.vacate(wanted.names)
        session.look()
      }
      throw e
    }
  }

  /** Makes a lease of a grant; the signal may have aborted when its answer was under way. */
  #adopt(session: Session, wanted: Wanted, token: number, limit: Limit): Lease {
    const lease = new Lease(session, wanted, token)
    if (limit.signal?.aborted) {
      void lease[Symbol.asyncDispose]()
      throw limit.signal.reason
    }
    return lease
  }

  /** Finds a session of the TTL in which the names are free, and makes sure that it lives. Readers and holders of a semaphore take another
   * session when this one has the name already. Others wait until it is free, as they would for another process. */
  async #enter(wanted: Wanted, avoid: Set<Session>, left: () => number, limit: Limit): Promise<Session> {
    for (;;) {
      const { session, busy } = this.#pick(wanted, avoid)
      if (!session) {
        limit.signal?.throwIfAborted()
        if (left() === 0) throw new NotAcquiredError(wanted.name)
        await busy.freed.wait({ end: now() + left(), signal: limit.signal })
        continue
      }
      try {
        await session.open(limit)
        return session
      } catch (e) {
        session.vacate(wanted.names)
        session.look()
        if (!isOverError(e)) throw e
      }
    }
  }

  /** A session whose names are occupied for the caller now, or one that has them. */
  #pick(wanted: Wanted, avoid: Set<Session>): { session: Session; busy?: never } | { session?: never; busy: Session } {
    if (this.#closed) throw new ClosedError()
    const alive = (this.#sessions.get(wanted.ttl) ?? []).filter((s) => !s.isLost())
    this.#sessions.set(wanted.ttl, alive)
    const usable = alive.filter((s) => !avoid.has(s))
    const found = usable.find((s) => s.occupy(wanted.names))
    if (found) return { session: found }
    const busy = usable.at(-1)
    if (busy && !wanted.several) return { busy }
    const session = new Session(this.#nodes, wanted.ttl, this.#label, this.#log)
    session.occupy(wanted.names)
    alive.push(session)
    return { session }
  }

  /** Acquires the lock, runs the body, and releases the lock. Returns what the body returns, or throws what it throws, or why the lock was
   * not acquired. A failure of the release is no error: the work is done, and the lock is given back in the background. */
  with<T>(name: string, body: Body<T>): Promise<T>
  with<T>(name: string, options: AcquireOptions, body: Body<T>): Promise<T>
  async with<T>(name: string, first: AcquireOptions | Body<T>, second?: Body<T>): Promise<T> {
    const [options, body] = typeof first === 'function' ? [{}, first] : [first, second]
    if (!body) throw new TypeError('fencelock: with() needs a function')
    const lease = await this.acquire(name, options)
    try {
      return await run(lease, body, options.signal)
    } finally {
      await lease[Symbol.asyncDispose]()
    }
  }

  /** Runs the body while this process leads: while it holds the lock. When the lock is lost the body's signal aborts; once the body has
   * ended, it stands for election again. It ends when the body ends while it still leads: then it resigns, and returns or throws what the
   * body did. While it does not lead, `options.signal` ends it with the reason of the signal. */
  async elect<T>(name: string, body: Body<T>, options: Omit<AcquireOptions, 'wait' | 'shared' | 'permits'> = {}): Promise<T> {
    for (;;) {
      const term = await this.#term(name, body, options)
      if (term) return term.result
      options.signal?.throwIfAborted()
    }
  }

  async #term<T>(name: string, body: Body<T>, options: AcquireOptions): Promise<{ result: T } | undefined> {
    let lease: Lease
    try {
      lease = await this.acquire(name, { ...options, wait: Infinity })
    } catch (e) {
      if (!(e instanceof UncertainError || e instanceof UnavailableError || e instanceof NotAcquiredError)) throw e
      await rest(STAND_AGAIN_MS, { end: Infinity, signal: options.signal })
      return undefined
    }
    try {
      const result = await run(lease, body, options.signal)
      return lease.lost.aborted ? undefined : { result }
    } catch (e) {
      if (lease.lost.aborted) return undefined
      throw e
    } finally {
      await lease[Symbol.asyncDispose]()
    }
  }

  /** The events of all locks whose names the pattern matches (*, ?, [a-z]). The first is a resync, and one comes after each gap: after a
   * broken connection, or when this reader was too slow. The signal, or the end of the loop, ends it. */
  watch(pattern: string, options: { signal?: AbortSignal | undefined } = {}): AsyncGenerator<LockEvent, void, undefined> {
    if (!pattern) throw new TypeError('fencelock: the pattern is empty: write * for all locks')
    return events(this.#nodes, pattern, options.signal)
  }

  /** Who holds the lock, the first of several; undefined when it is free. It takes nothing. */
  async holder(name: string): Promise<Holder | undefined> {
    const { replies: [show] } = await this.#nodes.ask({ words: () => [['SHOW', name]], attempt: ATTEMPT_FIRST_MS }, { end: now() + PATIENCE_MS })
    const token = numberOf(field(show, 'token'))
    if (token === 0) return undefined
    const [owner, label, value] = ['owner', 'label', 'value'].map((key) => textOf(field(show, key))) as [string, string, string]
    return { token, owner, label, value, ageMs: numberOf(field(show, 'age_ms')) }
  }

  /** Ends the client's sessions, and so its leases, with a LostError. It waits two seconds for that at most. */
  async close(): Promise<void> {
    if (this.#closed) return
    this.#closed = true
    const sessions = [...this.#sessions.values()].flat()
    this.#sessions.clear()
    const limit = { end: now() + CLOSE_MS }
    const closed = await Promise.allSettled(sessions.map((s) => s.close(limit)))
    this.#nodes.close()
    for (const c of closed) if (c.status === 'rejected' && !(c.reason instanceof RefusedError)) throw c.reason
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close().catch(() => {})
  }
}

async function run<T>(lease: Lease, body: Body<T>, outer: AbortSignal | undefined): Promise<T> {
  const both = new AbortController()
  const stops = [lease.lost, outer].map((signal) => onAbort(signal, () => both.abort(signal?.reason)))
  try {
    return await body(lease, both.signal)
  } finally {
    for (const stop of stops) stop()
  }
}
