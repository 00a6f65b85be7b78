/** Locks of a fencelock cluster: with a lease that is renewed, a signal that aborts when the lock is lost, and a fencing token that a storage
 * checks. */
export { connect, type Body, type Client, type ConnectOptions, type Holder } from './client'
export { clockName } from './clock'
export {
  ClosedError, FencelockError, LostError, NotAcquiredError, RefusedError, ReleasedError, StaleError, UnavailableError, UncertainError,
} from './errors'
export type { Lease } from './lease'
export type { AcquireOptions, Duration } from './options'
export type { State } from './state'
export type { LockEvent } from './watch'
