// What the holder of a lease may believe, and when to renew it. Pure: times and results of renewals come in; the state, and when the
// next thing is due, come out. It is the state machine of the C library (src/client/lease.h) and passes the same vectors.
//
//   sent            ttl/3          ttl/2                 deadline        the server's expiry
//    |----- safe ----|---- safe ----|----- jeopardy -------|  lost  . . . . . .|
//                  renewal due    none has come through        margin
//
// Times count from before the request was sent, so the server's lease ends later than the client's.

/** safe: the last renewal succeeded in time. jeopardy: none has succeeded for half of the TTL, or one has failed; begin nothing that takes
 * long. lost is final: stop. */
export type State = 'safe' | 'jeopardy' | 'lost'

/** renewed: the service said yes. gone: it holds nothing under this name any more. unknown: no answer, or a refusal for now. */
export type Outcome = 'renewed' | 'gone' | 'unknown'

/** From when on a lease that was asked for at `sent` must not be believed in. Two clocks may differ in speed by a hundredth, and each
 * reads whole milliseconds. */
const leaseUntil = (sent: number, ttl: number): number => sent + ttl - (Math.floor(ttl / 100) + 2)

export class LeaseState {
  until = 0
  #renewAt = 0
  #doubtAt = 0
  #state: State = 'safe'
  #renewing = false

  constructor(sent: number, readonly ttl: number) {
    this.#begin(sent)
  }

  #begin(sent: number): void {
    this.until = leaseUntil(sent, this.ttl)
    this.#doubtAt = sent + Math.floor(this.ttl / 2)
    this.#renewAt = sent + Math.floor(this.ttl / 3)
  }

  /** Moves on to the time and returns the state. */
  at(t: number): State {
    if (this.#state === 'lost' || t >= this.until) this.#state = 'lost'
    else if (t >= this.#doubtAt) this.#state = 'jeopardy'
    return this.#state
  }

  /** When the state changes or a renewal is due, if nothing else happens before. */
  next(): number {
    if (this.#state === 'lost') return Infinity
    const doubt = this.#state === 'safe' ? this.#doubtAt : Infinity
    return Math.min(this.until, doubt, this.#renewing ? Infinity : this.#renewAt)
  }

  get renewing(): boolean {
    return this.#renewing
  }

  wantsRenewal(t: number): boolean {
    return this.#state !== 'lost' && !this.#renewing && t >= this.#renewAt && t < this.until
  }

  renewalBegan(): void {
    this.#renewing = true
  }

  /** The outcome of the renewal that was sent at `sent`. A deadline that has passed is final. */
  renewalEnded(t: number, outcome: Outcome, sent: number): void {
    this.#renewing = false
    if (this.at(t) === 'lost') return
    if (outcome === 'gone') this.end()
    else if (outcome === 'renewed') this.renewed(t, sent)
    else {
      this.#state = 'jeopardy'
      this.#renewAt = t + Math.floor(this.ttl / 20) + 1
    }
  }

  renewed(t: number, sent: number): void {
    if (leaseUntil(sent, this.ttl) > this.until) this.#begin(sent)
    this.#state = 'safe'
    this.at(t)
  }

  end(): void {
    this.#state = 'lost'
  }

  remaining(t: number): number {
    return this.at(t) === 'lost' ? 0 : this.until - t
  }
}
