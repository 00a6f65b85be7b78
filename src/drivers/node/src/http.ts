import { StaleError } from './errors'
import type { Lease } from './lease'

/** Headers of a request that is sent under a lock. */
export const HEADER_LOCK = 'Fencing-Lock'
export const HEADER_TOKEN = 'Fencing-Token'

/** Lock and token, for the headers of fetch() and of others. */
export function headers(lease: Lease): { [HEADER_LOCK]: string; [HEADER_TOKEN]: string } {
  return { [HEADER_LOCK]: lease.name, [HEADER_TOKEN]: String(lease.token) }
}

/** Headers as fetch() has them, or as node:http has them. */
export type Received = { get(name: string): string | null } | { readonly [name: string]: string | string[] | undefined }

function one(received: Received, name: string): string {
  if (typeof received['get'] === 'function') return received['get'](name) ?? ''
  const value = (received as { readonly [name: string]: string | string[] | undefined })[name.toLowerCase()]
  return typeof value === 'string' ? value : ''
}

/** The receiver's side, for a service whose data dies with its process: the highest token of each lock. A service with durable data keeps its
 * marks there, in the transaction that changes the data (docs/FENCING.md). */
export class Marks {
  #marks = new Map<string, number>()

  /** Raises the mark to the request's token, and throws StaleError when a newer one has been here. The operation must be done before another
   * one of the same lock is admitted. */
  admit(received: Received): void {
    const lock = one(received, HEADER_LOCK)
    const text = one(received, HEADER_TOKEN)
    const token = /^[0-9]+$/.test(text) ? Number(text) : 0
    if (!lock || token < 1 || !Number.isSafeInteger(token)) throw new TypeError(`fencelock: the request has no ${HEADER_LOCK} and ${HEADER_TOKEN}`)
    const mark = this.#marks.get(lock) ?? 0
    if (token < mark) throw new StaleError(`token ${token}, mark ${mark}`)
    this.#marks.set(lock, token)
  }
}
