import { now } from './clock'
import { LostError, ReleasedError, type FencelockError } from './errors'
import type { Wanted } from './options'
import type { Session } from './session'
import type { State } from './state'

const RELEASE_MS = 5000

/** A lock that is held, and renewed until it is released or lost. The owner is the lease, whichever function uses it. */
export class Lease implements AsyncDisposable {
  /** The name of the lock, the first one when there are several. */
  readonly name: string
  /** The names of all its locks. */
  readonly names: string[]
  /** Every write at the storage carries it. It is larger than the tokens of all earlier holders. */
  readonly token: number
  #session: Session
  #wanted: Wanted
  #ended = new AbortController()

  /** @internal */
  constructor(session: Session, wanted: Wanted, token: number) {
    this.#session = session
    this.#wanted = wanted
    this.name = wanted.name
    this.names = wanted.names
    this.token = token
    session.leases.add(this)
  }

  /** Aborts when the lease is lost or released; its reason says which: a LostError or a ReleasedError. It aborts before another client can
   * hold the lock, unless this process stands still or its event loop is blocked: that is what the token is for. The look at it looks at the
   * clock, so it is right also in the first moment afterwards. */
  get lost(): AbortSignal {
    if (!this.#ended.signal.aborted && this.#session.isLost()) this.#session.look()
    return this.#ended.signal
  }

  /** Throws the reason of `lost` when the lease is over. */
  check(): void {
    this.lost.throwIfAborted()
  }

  /** safe; jeopardy: renewals are late; lost: also after the release. */
  get state(): State {
    return this.lost.aborted ? 'lost' : (this.#session.state?.at(now()) ?? 'lost')
  }

  /** How many milliseconds the lease may be believed in if no further renewal succeeds. 0: it is over. */
  get remaining(): number {
    return this.lost.aborted ? 0 : (this.#session.state?.remaining(now()) ?? 0)
  }

  /** @internal */
  end(why: FencelockError): void {
    this.#ended.abort(why)
  }

  /** Gives the lock back. It waits five seconds for the answer at most. A release without an answer goes on in the background, so the lock
   * does not stay held. LostError says that the lease had ended before: no reason to do the work again. */
  async release(): Promise<void> {
    const before: unknown = this.lost.aborted ? this.lost.reason : undefined
    const session = this.#session
    if (before instanceof ReleasedError) return
    if (!session.leases.delete(this)) throw before
    this.end(new ReleasedError(this.name))
    try {
      const request = session.request(['RELEASE', this.name, this.token])
      const { replies } = await session.nodes.ask(request, { end: now() + RELEASE_MS })
      if (replies[0] === 0) throw new LostError(this.name, 'it had ended before its release')
    } catch (e) {
      if (e instanceof LostError) this.#free()
      else void session.settle(this.#wanted) // also when it was not sent, or refused: the lock is held
      throw e
    }
    this.#free()
  }

  #free(): void {
    this.#session.vacate(this.names)
    this.#session.look()
  }

  /** release() without its error: the work is done, and an error of the block must not be hidden. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.release().catch(() => {})
  }
}
