/** Every error of this package, but for wrong arguments (RangeError, TypeError). `code` is the same in all copies of the package. */
export class FencelockError extends Error {
  readonly code: string

  constructor(code: string, message: string, options?: ErrorOptions) {
    super('fencelock: ' + message, options)
    this.code = 'FENCELOCK_' + code
    this.name = new.target.name
  }
}

/** The lock is lost: another client may hold it from now on. Stop. It is the reason of `lease.lost`. */
export class LostError extends FencelockError {
  constructor(name: string, why = 'another client may hold it from now on') {
    super('LOST', `the lock ${JSON.stringify(name)} is lost; ${why}`)
  }
}

/** The lease was released. It is the reason of `lease.lost` then. */
export class ReleasedError extends FencelockError {
  constructor(name: string) {
    super('RELEASED', `the lock ${JSON.stringify(name)} was released`)
  }
}

/** Other clients held the lock for as long as acquire() was to wait. */
export class NotAcquiredError extends FencelockError {
  constructor(name: string) {
    super('NOT_ACQUIRED', `another client holds the lock ${JSON.stringify(name)}`)
  }
}

/** A newer holder has been at the storage, so nothing was done there. Do not try it again under this token: take the lock again. */
export class StaleError extends FencelockError {
  constructor(message: string) {
    super('STALE', 'a newer holder of the lock has been at the storage: ' + message)
  }
}

/** The outcome is unknown: the request may have been carried out. */
export class UncertainError extends FencelockError {
  constructor(cause?: unknown) {
    super('UNCERTAIN', 'the outcome is unknown: no node has answered', { cause })
  }
}

/** No node answered, or none leads, for as long as the request could wait. It was not carried out. */
export class UnavailableError extends FencelockError {
  constructor(cause?: unknown) {
    super('UNAVAILABLE', 'no node serves', { cause })
  }
}

/** The client was closed. */
export class ClosedError extends FencelockError {
  constructor() {
    super('CLOSED', 'the client is closed: connect() again')
  }
}

/** A refusal by the service: surely not done, and sending it again will not help. */
export class RefusedError extends FencelockError {
  /** The first word of the answer: ERR, LIMIT, NOPERM, MISMATCH, NOAUTH, ... */
  readonly word: string

  constructor(line: string) {
    super('REFUSED', line)
    this.word = line.split(' ', 1)[0] ?? ''
  }
}

export const isWord = (error: unknown, word: string): boolean => error instanceof RefusedError && error.word === word

/** The cluster has decided about this very attempt, so that none before it has an effect any more. Other refusals may come from a node by
 * itself. */
export const isSeen = (error: unknown): boolean => ['NOSESSION', 'DEADLOCK', 'MISMATCH'].some((word) => isWord(error, word))
