import { Connection } from './connection'
import type { Nodes } from './nodes'
import type { Reply } from './resp'
import { onAbort, rest } from './wait'

/** Something that happened to a lock. */
export interface LockEvent {
  /** resync: events were missed, so look again. Others may be added. */
  kind: 'granted' | 'queued' | 'released' | 'expired' | 'broken' | 'left' | 'resync' | (string & {})
  /** '' for a gap that concerns every lock of the pattern. */
  lock: string
  token: number
  owner: string
  /** Of the cluster, in milliseconds. */
  clock: number
}

const PAUSE_FIRST_MS = 10
const PAUSE_MOST_MS = 500
const QUIET_MS = 5000 // after so long without an event the node is asked whether it is there
const WAITING_MOST = 1000 // events that a slow reader has not taken; beyond that the node waits
const PREFIX = 'lock:'

export async function* events(nodes: Nodes, pattern: string, signal: AbortSignal | undefined): AsyncGenerator<LockEvent, void, undefined> {
  let pause = PAUSE_FIRST_MS
  for (let at = nodes.prefer; !signal?.aborted && !nodes.isClosed; at++) {
    const c = nodes.at(at).connect()
    const stop = onAbort(signal, () => c.end(new Error('the watch has ended')))
    try {
      for await (const e of subscription(c, pattern)) {
        pause = PAUSE_FIRST_MS
        if (!signal?.aborted) yield e
      }
    } finally {
      stop()
      c.end(new Error('the watch has ended'))
    }
    await rest(pause, { end: Infinity, signal })
    pause = Math.min(pause * 2, PAUSE_MOST_MS)
  }
}

/** The events of one connection, until it ends. */
async function* subscription(c: Connection, pattern: string): AsyncGenerator<LockEvent, void, undefined> {
  const waiting: LockEvent[] = []
  let wake = (): void => {}
  let asked = false
  const quiet = setInterval(() => {
    if (asked) c.end(new Error('the node says nothing'))
    asked = true
    c.write(['PING'])
  }, QUIET_MS)
  const before = c.onEnd
  c.onEnd = () => {
    before()
    wake()
  }
  c.onEvent = (reply) => {
    asked = false
    const e = eventOf(reply)
    if (e && waiting.push(e) === WAITING_MOST) c.pause()
    wake()
  }
  try {
    await c.exchange([['PSUBSCRIBE', PREFIX + pattern]]).then(() => waiting.unshift(RESYNC), () => {})
    while (!c.ended || waiting.length > 0) {
      for (let e = waiting.shift(); e; e = waiting.shift()) yield e
      c.resume()
      if (!c.ended) await new Promise<void>((resolve) => (wake = resolve))
    }
  } finally {
    clearInterval(quiet)
  }
}

const RESYNC: LockEvent = { kind: 'resync', lock: '', token: 0, owner: '', clock: 0 }

/** Of the answer ["pmessage", pattern, channel, "event=granted token=17 ..."]. */
function eventOf(reply: Reply): LockEvent | undefined {
  if (!Array.isArray(reply) || reply[0] !== 'pmessage') return undefined
  const [, , channel, payload] = reply
  const said = new Map(String(payload).split(' ').map((word) => {
    const at = word.indexOf('=')
    return [word.slice(0, at), word.slice(at + 1)] as const
  }))
  return {
    kind: said.get('event') ?? '',
    lock: String(channel).startsWith(PREFIX) ? String(channel).slice(PREFIX.length) : '',
    token: Number(said.get('token') ?? 0),
    owner: plain(said.get('owner') ?? ''),
    clock: Number(said.get('clock') ?? 0),
  }
}

/** %XX is a byte. */
function plain(text: string): string {
  const bytes = text.replace(/%([0-9a-fA-F]{2})/g, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)))
  return Buffer.from(bytes, 'latin1').toString('utf8')
}
