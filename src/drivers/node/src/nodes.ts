import type { ConnectionOptions } from 'node:tls'
import { now } from './clock'
import { Connection, NotSent, type Place } from './connection'
import { ClosedError, RefusedError, UnavailableError, UncertainError, isSeen } from './errors'
import { ReplyError, type Reply, type Words } from './resp'
import type { Target } from './url'
import { isOver, onAbort, rest, type Limit } from './wait'

const PAUSE_FIRST_MS = 10
const PAUSE_MOST_MS = 500
export const ATTEMPT_FIRST_MS = 500 // for an answer that is due at once, in the first round
const ATTEMPT_MOST_MS = 8000
const PROBE_EVERY_MS = 2000 // a node that holds an answer back is asked whether it still serves
const PROBE_LEAST_MS = 1000
const PROBES_MOST = 2 // so many without a leader, one after another, and the wait goes on elsewhere
const IDLE_WAITERS = 16
const TOGETHER = 8 // exchanges with one node

/** One request, or several that are sent together, that may be carried out twice without harm. Each attempt asks for the words again, since
 * ACQUIRE numbers its attempts. held: how long the server may hold the answer back. */
export interface Request {
  words: () => Words[]
  held?: () => number
  attempt: number
  urgent?: boolean
}

/** One reply for each request that was sent together. sent is from before the attempt that was answered. */
export interface Answer {
  replies: Reply[]
  sent: number
}

/** refused: for good. elsewhere: surely not done; another node, or this one after a pause. uncertain: the node lost its leader in the
 * middle, and knows the next one first. silent: no answer; it may be done. */
type Verdict = 'refused' | 'elsewhere' | 'uncertain' | 'silent'

function judge(error: unknown): Verdict {
  if (error instanceof NotSent) return 'elsewhere'
  if (!(error instanceof ReplyError)) return 'silent'
  const word = error.message.split(' ', 1)[0]
  if (word === 'NOLEADER' || word === 'BUSY') return 'elsewhere'
  return word === 'UNCERTAIN' ? 'uncertain' : 'refused'
}

/** One server. */
export class Node {
  #idle: Connection[] = []
  #waiters: Connection[] = [] // for answers that are held back
  #all = new Set<Connection>()
  #free = TOGETHER
  #queue = new Set<() => void>()

  constructor(readonly place: Place) {}

  connect(): Connection {
    const c = new Connection(this.place)
    this.#all.add(c)
    c.onEnd = () => {
      this.#all.delete(c)
      this.#idle = this.#idle.filter((x) => x !== c)
      this.#waiters = this.#waiters.filter((x) => x !== c)
    }
    return c
  }

  close(): void {
    for (const c of [...this.#all]) c.end(new Error('the client is closed'))
  }

  /** Waits until fewer than TOGETHER exchanges are under way. */
  async #enter(limit: Limit): Promise<void> {
    if (this.#free > 0) {
      this.#free--
      return
    }
    const turn = new AbortController()
    const go = (): void => turn.abort()
    const stop = onAbort(limit.signal, go)
    this.#queue.add(go)
    await rest(Infinity, { end: limit.end, signal: turn.signal })
    stop()
    if (this.#queue.delete(go)) throw new NotSent('the connections to the node are all in use')
  }

  #leave(): void {
    const [next] = this.#queue
    if (!next) this.#free++
    else {
      this.#queue.delete(next)
      next()
    }
  }

  async exchange(words: Words[], ms: number, urgent = false, signal?: AbortSignal): Promise<Reply[]> {
    const limit = { end: now() + ms, signal }
    if (!urgent) await this.#enter(limit)
    try {
      const c = this.#idle.pop() ?? this.connect()
      try {
        return await within(c, words, Math.max(limit.end - now(), 1), signal)
      } finally {
        if (!c.ended) this.#idle.push(c)
      }
    } finally {
      if (!urgent) this.#leave()
    }
  }

  /** One attempt. An answer that is held back has a connection of its own. It is closed when the wait is given up, and the node takes back
   * the place in the queue. */
  async try(request: Request, attempt: number, limit: Limit): Promise<Answer> {
    const held = request.held?.() ?? 0
    const most = Math.min(held + attempt, limit.end === Infinity ? Infinity : Math.max(limit.end - now(), 1))
    const words = request.words()
    const sent = now()
    if (held === 0) return { replies: await this.exchange(words, most, request.urgent, limit.signal), sent }
    const c = this.#waiters.pop() ?? this.connect()
    const stop = this.#probe(c, attempt)
    try {
      return { replies: await within(c, words, most, limit.signal), sent }
    } finally {
      stop()
      if (this.#waiters.length >= IDLE_WAITERS) c.end(new Error('no more use'))
      if (!c.ended) this.#waiters.push(c)
    }
  }

  /** Ends the connection when its node hangs, which closes nothing, or knows no leader. */
  #probe(c: Connection, attempt: number): () => void {
    let poor = 0
    let probing = false
    const timer = setInterval(() => {
      if (probing) return
      probing = true
      this.#poor(Math.max(attempt, PROBE_LEAST_MS)).then((n) => {
        probing = false
        poor = n === 0 ? 0 : poor + n
        if (poor >= PROBES_MOST) c.end(new Error('the node says nothing, or knows no leader'))
      })
    }, PROBE_EVERY_MS)
    return () => clearInterval(timer)
  }

  /** 0: the node knows a leader. A node without one may be in an election, so that counts half of a node that is silent. */
  async #poor(ms: number): Promise<number> {
    try {
      const [leader] = await this.exchange([['LEADER']], ms, true)
      return leader === null ? 1 : 0
    } catch {
      return PROBES_MOST
    }
  }
}

async function within(c: Connection, words: Words[], ms: number, signal?: AbortSignal): Promise<Reply[]> {
  const timer = setTimeout(() => c.end(new Error('the node does not answer in time')), ms)
  const stop = onAbort(signal, () => c.end(new Error('given up')))
  try {
    return await c.exchange(words)
  } finally {
    clearTimeout(timer)
    stop()
  }
}

export class Nodes {
  readonly list: Node[]
  prefer: number // the one that answered last
  #closed = false

  constructor(target: Target, tls: ConnectionOptions, label: string) {
    this.list = target.addresses.map(({ host, port }) => new Node({
      host, port, label, user: target.user, password: target.password, tls: target.tls ? tls : undefined,
    }))
    this.prefer = Math.floor(Math.random() * this.list.length)
  }

  at(i: number): Node {
    return this.list[i % this.list.length] as Node
  }

  get isClosed(): boolean {
    return this.#closed
  }

  close(): void {
    this.#closed = true
    for (const node of this.list) node.close()
  }

  /** Sends the request, to one node after another, until one answers or refuses it or the limit is over. When it is refused or the limit is
   * over, the error is UncertainError if some attempt may have been carried out. It is UnavailableError if surely none was. */
  async ask(request: Request, limit: Limit): Promise<Answer> {
    let { attempt } = request
    let [at, asked, pause, stayed, open] = [this.prefer, 0, PAUSE_FIRST_MS, false, false]
    let last: unknown
    while (!isOver(limit)) {
      if (this.#closed) throw new ClosedError()
      try {
        const answer = await this.at(at).try(request, attempt, limit)
        this.prefer = at
        return answer
      } catch (e) {
        last = e
      }
      const verdict = judge(last)
      if (verdict === 'refused') {
        const refusal = new RefusedError((last as Error).message)
        throw open && !isSeen(refusal) ? new UncertainError(refusal) : refusal // it is about this attempt, and not about the one before
      }
      open ||= verdict === 'silent' || verdict === 'uncertain'
      if (verdict === 'uncertain' && !stayed) {
        stayed = true
        continue
      }
      stayed = false
      at = (at + 1) % this.list.length
      if (++asked % this.list.length === 0) {
        await rest(1 + Math.random() * pause, limit)
        pause = Math.min(pause * 2, PAUSE_MOST_MS)
        attempt = Math.min(attempt * 2, ATTEMPT_MOST_MS)
      }
    }
    if (this.#closed) throw new ClosedError()
    throw open ? new UncertainError(last) : new UnavailableError(last)
  }
}
