import { now } from './clock'

/** How long something may take: until `end` of the clock of leases, or the signal. */
export interface Limit {
  readonly end: number
  readonly signal?: AbortSignal | undefined
}

const LOOK_MS = 1000 // timers stand still in a suspension, so none is longer where a deadline matters

export const isOver = (limit: Limit): boolean => limit.signal?.aborted === true || now() >= limit.end

/** Calls back once when the signal aborts, until the returned function is called. */
export function onAbort(signal: AbortSignal | undefined, run: () => void): () => void {
  if (signal?.aborted) {
    run()
    return () => {}
  }
  signal?.addEventListener('abort', run, { once: true })
  return () => signal?.removeEventListener('abort', run)
}

/** Ends after so many milliseconds, or with the limit. */
export function rest(ms: number, limit: Limit): Promise<void> {
  return new Promise((resolve) => {
    const end = Math.min(now() + ms, limit.end)
    let timer: NodeJS.Timeout | undefined
    const look = (): void => {
      const left = end - now()
      if (left <= 0 || limit.signal?.aborted) {
        clearTimeout(timer)
        stop()
        resolve()
      } else timer = setTimeout(look, Math.min(left, LOOK_MS))
    }
    let stop = (): void => {}
    stop = onAbort(limit.signal, look)
    if (!limit.signal?.aborted) look()
  })
}

/** An event that happens again and again: wait() ends at the next one. */
export class Bell {
  #waiting = new Set<() => void>()

  ring(): void {
    for (const wake of [...this.#waiting]) wake()
  }

  /** Ends with the next ring, or with the limit. */
  async wait(limit: Limit): Promise<void> {
    const rung = new AbortController()
    const wake = (): void => rung.abort()
    this.#waiting.add(wake)
    const stop = onAbort(limit.signal, wake)
    try {
      await rest(Infinity, { end: limit.end, signal: rung.signal })
    } finally {
      this.#waiting.delete(wake)
      stop()
    }
  }
}
