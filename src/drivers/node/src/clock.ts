import { readFileSync } from 'node:fs'

// Node's own clock stands still while the machine is suspended. /proc/uptime of Linux goes on, but has only hundredths of a second. So
// `ahead` is what has to be added to the fine clock: never too little by more than one step of the coarse one.
const STEP_MS = 10
const PROC = '/proc/uptime'

function uptime(): number | undefined {
  try {
    return Math.round(Number.parseFloat(readFileSync(PROC, 'latin1')) * 1000)
  } catch {
    return undefined
  }
}

const counts = uptime() !== undefined

/** The clock that leases are counted on. On other systems than Linux it stands still in a suspension: afterwards a holder may believe in
 * its lease for too long, and the token protects the data. */
export const clockName = counts ? 'CLOCK_BOOTTIME' : 'the monotonic clock of Node, which stands still in a suspension'

let ahead = -Infinity

/** Milliseconds of the clock that goes on in a suspension. */
export function now(): number {
  if (!counts) return Math.floor(performance.now())
  let before = 0
  let coarse: number | undefined
  let after = 0
  for (let tries = 0; tries < 5; tries++) { // a process that is stopped between the two clocks looks again
    before = performance.now()
    coarse = uptime()
    after = performance.now()
    if (after - before < STEP_MS) break
  }
  if (coarse !== undefined && coarse - after > ahead) ahead = coarse - after + STEP_MS
  return Math.floor(after + ahead)
}
