import { ATTEMPT_FIRST_MS } from './nodes'
import type { Words } from './resp'

const NAME_MAX = 255
const ALSO_MAX = 15
const TTL_MIN_MS = 50
const TTL_MAX_MS = 24 * 3600 * 1000
const PERMITS_MAX = 1000000
const VALUE_MAX = 1024

/** Milliseconds, or a number with a unit: '500ms', '10s', '5m', '1h'. */
export type Duration = number | `${number}ms` | `${number}s` | `${number}m` | `${number}h`

export interface AcquireOptions {
  /** How long the lock outlives a process that dies: 50 ms to a day, 10 s by default. It is renewed while the lease is held. Leases of one
   * TTL share one renewal. */
  ttl?: Duration | undefined
  /** How long to wait in the queue while others hold the lock; by default not at all. Infinity: until the signal. */
  wait?: Duration | undefined
  /** Together with other readers. A reader's token guards no write: see docs/PROTOCOL.md. */
  shared?: boolean | undefined
  /** As one of so many holders of a semaphore; 1 to 1,000,000. Every client of the lock gives the same number. */
  permits?: number | undefined
  /** Further locks, all or none, under one token; 15 at most. */
  also?: readonly string[] | undefined
  /** What holder() tells others of the lease, such as the name of this process; 1024 bytes at most. */
  value?: string | undefined
  /** Ends the wait: acquire() then throws its reason, and leaves no lock. */
  signal?: AbortSignal | undefined
}

const UNITS: Record<string, number> = { ms: 1, s: 1000, m: 60000, h: 3600000 }

function milliseconds(duration: Duration, what: string): number {
  const parts = typeof duration === 'string' ? /^([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)$/.exec(duration) : undefined
  const ms = typeof duration === 'number' ? duration : Number(parts?.[1]) * (UNITS[parts?.[2] ?? ''] ?? NaN)
  if (!(ms >= 0)) throw new TypeError(`fencelock: ${what} is ${JSON.stringify(duration)}: give milliseconds, or text as '500ms', '10s', '5m' or '1h'`)
  return Math.ceil(ms)
}

function range(n: number, what: string, least: number, most: number): void {
  if (!Number.isInteger(n) || n < least || n > most) throw new RangeError(`fencelock: ${what} is ${n}: give ${least} to ${most}`)
}

/** What acquire() was asked for. */
export class Wanted {
  readonly names: string[]
  readonly ttl: number
  readonly wait: number
  readonly several: boolean // one process may hold it more than once

  constructor(readonly name: string, readonly options: AcquireOptions) {
    const { also = [], permits, shared = false, value = '' } = options
    this.names = [name, ...also]
    this.ttl = milliseconds(options.ttl ?? '10s', 'ttl')
    this.wait = milliseconds(options.wait ?? 0, 'wait')
    this.several = shared || (permits ?? 1) > 1
    for (const n of this.names) range(Buffer.byteLength(n), 'the length of the name of a lock, in bytes,', 1, NAME_MAX)
    range(this.ttl, 'ttl, in milliseconds,', TTL_MIN_MS, TTL_MAX_MS)
    range(also.length, 'the number of locks in `also`', 0, ALSO_MAX)
    range(Buffer.byteLength(value), 'the length of `value`, in bytes,', 0, VALUE_MAX)
    if (permits !== undefined) range(permits, 'permits', 1, PERMITS_MAX)
    if (Number(shared) + Number(permits !== undefined) + Number(also.length > 0) > 1) {
      throw new TypeError('fencelock: shared, permits and also exclude each other')
    }
  }

  words(owner: string, attempt: number, wait: number): Words {
    const { also = [], permits, shared, value } = this.options
    const words: Words = ['ACQUIRE', this.name, 'SESSION', owner]
    if (wait > 0) words.push('WAIT', wait)
    for (const name of also) words.push('ALSO', name)
    if (shared) words.push('MODE', 'SHARED')
    if (permits !== undefined) words.push('PERMITS', permits)
    if (value) words.push('VALUE', value)
    if (attempt > 1) words.push('ATTEMPT', attempt)
    return words
  }
}

/** For the first attempt of a request that is answered at once. */
export const firstAttempt = (ttl: number): number => Math.min(Math.max(Math.floor(ttl / 10), 50), ATTEMPT_FIRST_MS)
