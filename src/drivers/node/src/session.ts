import { randomBytes } from 'node:crypto'
import { now } from './clock'
import { LostError, RefusedError, UnavailableError, isSeen, isWord } from './errors'
import type { Lease } from './lease'
import type { Answer, Nodes, Request } from './nodes'
import { firstAttempt, type Wanted } from './options'
import { field, numberOf, type Words } from './resp'
import { LeaseState, type Outcome } from './state'
import { Bell, isOver, rest, type Limit } from './wait'

const LOOK_MOST_MS = 1000 // timers stand still in a suspension, so none is longer
const CHECKS_TOGETHER = 64
const SETTLE_AGAIN_MS = 1000 // after a refusal, for instance by a node that takes no more connections

export type Log = (message: string, error?: unknown) => void

/** Many leases of one TTL under one lease at the service: one renewal for all of them. A lock can be held once by a session, so a lease
 * occupies the names of its locks there. */
export class Session {
  readonly owner = randomBytes(16).toString('hex')
  readonly leases = new Set<Lease>()
  readonly freed = new Bell() // names have become free
  state: LeaseState | undefined // undefined: not open yet
  #occupied = new Set<string>() // names of leases, of acquires under way, and of those that are being settled
  #attempts = new Map<string, number>() // the last number that was sent, for names whose request was ever sent twice
  #opening = false
  #closed = false
  #opened = new Bell()
  #timer: NodeJS.Timeout | undefined

  constructor(readonly nodes: Nodes, readonly ttl: number, readonly label: string, readonly log: Log) {}

  /** Takes the names; false: one of them is taken, or the session is lost. */
  occupy(names: string[]): boolean {
    if (this.isLost() || names.some((name) => this.#occupied.has(name))) return false
    for (const name of names) this.#occupied.add(name)
    return true
  }

  vacate(names: string[]): void {
    for (const name of names) this.#occupied.delete(name)
    this.freed.ring()
  }

  isLost(): boolean {
    return this.state?.at(now()) === 'lost'
  }

  /** A request that is answered at once and may be sent again as it is. */
  request(...requests: Words[]): Request {
    return { words: () => requests, attempt: firstAttempt(this.ttl) }
  }

  /** Makes sure that the session lives for at least half of its TTL, and that it is renewed from then on. */
  async open(limit: Limit): Promise<void> {
    while (this.#opening) {
      if (isOver(limit)) throw new UnavailableError()
      await this.#opened.wait(limit)
    }
    if (this.isLost()) throw over()
    if (this.state?.at(now()) !== 'safe') {
      this.#opening = true
      try {
        const request = this.request(['SESSION', 'OPEN', this.owner, 'TTL', this.ttl, 'LABEL', this.label])
        const { sent } = await this.nodes.ask(request, limit)
        this.#answered(sent)
        if (this.#closed) throw over()
      } finally {
        this.#opening = false
        this.#opened.ring()
      }
    }
    this.look()
  }

  /** The answer to an open. The leases may have been lost meanwhile: a lost one never comes back. */
  #answered(sent: number): void {
    if (this.isLost()) throw over()
    if (this.state) this.state.renewed(now(), sent)
    else this.state = new LeaseState(sent, this.ttl)
  }

  /** Tells every lease of the loss, or renews when it is time. An idle session is left to expire: a lock that is taken soon afterwards finds
   * it alive, and a process that takes no more costs nothing. */
  look(): void {
    if (!this.state) return
    clearTimeout(this.#timer)
    const t = now()
    const lost = this.state.at(t) === 'lost'
    if (lost) this.#lose()
    if (lost || (this.#occupied.size === 0 && !this.state.renewing)) return
    if (this.state.wantsRenewal(t)) {
      this.state.renewalBegan()
      void this.#renew()
    }
    this.#timer = setTimeout(() => this.look(), Math.min(Math.max(this.state.next() - t, 1), LOOK_MOST_MS))
  }

  /** Nothing that it held or awaited is left once its lease is over. */
  #lose(): void {
    const leases = [...this.leases]
    this.leases.clear()
    this.#occupied.clear()
    for (const lease of leases) lease.end(new LostError(lease.name))
    this.freed.ring()
  }

  /** The service does not know the session any more. */
  over(): void {
    this.state?.end()
    this.look()
  }

  /** Renews the session, and looks whether the service still has all of its locks: an operator may have broken one. */
  async #renew(): Promise<void> {
    const state = this.state as LeaseState
    const held = [...this.leases].reduce((n, lease) => n + lease.names.length, 0)
    let outcome: Outcome = 'renewed'
    let sent = 0
    try {
      const request = { ...this.request(['SESSION', 'RENEW', this.owner], ['SESSION', 'SHOW', this.owner]), urgent: true }
      const answer = await this.nodes.ask(request, { end: state.until })
      sent = answer.sent
      if (answer.replies[0] === 0) outcome = 'gone'
      else if (numberOf(field(answer.replies[1], 'locks')) < held) void this.#findBroken()
    } catch (e) {
      outcome = 'unknown'
      this.log('a renewal failed', e)
    }
    state.renewalEnded(now(), outcome, sent)
    this.look()
  }

  /** Asks about each lease, and ends those that the service does not know. */
  async #findBroken(): Promise<void> {
    const leases = [...this.leases]
    for (let from = 0; from < leases.length; from += CHECKS_TOGETHER) {
      const part = leases.slice(from, from + CHECKS_TOGETHER)
      let answer: Answer
      try {
        answer = await this.nodes.ask(this.request(...part.map((l): Words => ['CHECK', l.name, l.token])), { end: now() + this.ttl })
      } catch {
        return // the next renewal looks again
      }
      part.forEach((lease, i) => {
        if (answer.replies[i] !== 0 || !this.leases.delete(lease)) return
        lease.end(new LostError(lease.name))
        this.vacate(lease.names)
      })
    }
  }

  /** Asks the service for the lock. 0: others have it. Every attempt after the first has a number above all before it, so that a late one
   * takes nothing. */
  async take(wanted: Wanted, wait: () => number, limit: Limit): Promise<number> {
    const key = [...wanted.names].sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)))[0] ?? '' // as the service counts them
    const again = this.#attempts.has(key)
    let number = this.#attempts.get(key) ?? 0
    const words = (): Words[] => {
      number++
      if (again || number > 1) {
        number = Math.max(number, (this.#attempts.get(key) ?? 0) + 1, 2)
        this.#attempts.set(key, number)
      }
      return [wanted.words(this.owner, number, wait())]
    }
    const { replies } = await this.nodes.ask({ ...this.request(), words, held: wait }, limit)
    return numberOf(replies[0])
  }

  /** Makes sure that an acquire or a release without success holds nothing: asks once more, as a later attempt that does not wait, and gives
   * back the grant. It ends when it is answered, or with the session. Until then the names stay occupied. */
  async settle(wanted: Wanted): Promise<void> {
    while (this.state && !this.isLost()) {
      const limit = { end: this.state.until + 1 }
      try {
        const token = await this.take(wanted, () => 1, limit)
        if (token !== 0) await this.nodes.ask(this.request(['RELEASE', wanted.name, token]), limit)
      } catch (e) {
        if (!isSeen(e)) {
          await rest(SETTLE_AGAIN_MS, limit)
          continue
        }
      }
      this.vacate(wanted.names)
      break
    }
    this.look()
  }

  async close(limit: Limit): Promise<void> {
    this.#closed = true
    while (this.#opening && !isOver(limit)) await this.#opened.wait(limit) // or it would live on, and be granted what it waits for
    if (!this.state || this.isLost()) return
    this.over()
    await this.nodes.ask(this.request(['SESSION', 'CLOSE', this.owner]), limit)
  }
}

const over = (): RefusedError => new RefusedError('NOSESSION the session is over')
export const isOverError = (e: unknown): boolean => isWord(e, 'NOSESSION')
