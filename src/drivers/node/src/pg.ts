import { StaleError } from './errors'
import type { Lease } from './lease'

// The guard's SQLSTATE that means: this lease will never be admitted.
const STALE = '44L01'
const CLAIM = 'CALL fence.claim($1, $2)'
const USE = 'SELECT fence.use($1, $2)'

/** A connection of node-postgres. */
export interface PgClient {
  query(text: string, values?: unknown[]): Promise<unknown>
}

/** A Pool of node-postgres. */
export interface PgPool<C extends PgClient> {
  connect: { (): Promise<C>; (callback: never): void }
  readonly idleCount: number
}

/** StaleError of the guard's refusal, as node-postgres or Prisma tells it; other errors as they are. The new error has not the driver's one
 * inside, which frameworks take for a passing failure of the server. */
export function translate(error: unknown): unknown {
  const { code, message, meta } = Object(error) as { code?: unknown; message?: unknown; meta?: { driverAdapterError?: { cause?: unknown } } }
  const told = Object(meta?.driverAdapterError?.cause) as { originalCode?: unknown; originalMessage?: unknown }
  if (told.originalCode === STALE) return new StaleError(String(told.originalMessage))
  return code === STALE ? new StaleError(String(message)) : error
}

/** Carries the token of a lease into transactions of a PostgreSQL database that has fencelock's guard (src/guards/postgresql). It stands on
 * node-postgres. */
export class Fence<C extends PgClient> {
  readonly #db: C | PgPool<C>
  readonly #lease: Lease

  private constructor(db: C | PgPool<C>, lease: Lease) {
    this.#db = db
    this.#lease = lease
  }

  /** Tells the database of the lease: from then on it refuses every older token. Claim before the first read. StaleError says that a newer
   * holder has claimed: the lease is over. */
  static async claim<C extends PgClient>(pool: PgPool<C>, lease: Lease): Promise<Fence<C>>
  static async claim<C extends PgClient>(client: C, lease: Lease): Promise<Fence<C>>
  static async claim<C extends PgClient>(db: C | PgPool<C>, lease: Lease): Promise<Fence<C>> {
    lease.check()
    const fence = new Fence(db, lease)
    await fence.#with((client) => client.query(CLAIM, [lease.name, lease.token]))
    return fence
  }

  /** Runs the body in a transaction that carries the token, and commits it. The guard refuses the writes of a lease that is stale: StaleError,
   * which no retry cures. The commit of a lost lease is not sent. */
  transaction<T>(body: (client: C) => Promise<T>): Promise<T> {
    return this.#with(async (client) => {
      await client.query('BEGIN')
      try {
        await client.query(USE, [this.#lease.name, this.#lease.token])
        const result = await body(client)
        this.#lease.check()
        await commit(client)
        return result
      } catch (e) {
        await client.query('ROLLBACK') // its failure ends the connection
          .catch((broken: unknown) => { throw new Broken(e, broken) })
        throw e
      }
    })
  }

  async #with<T>(run: (client: C) => Promise<T>): Promise<T> {
    if (!isPool(this.#db)) return run(this.#db).catch(fail)
    const client = (await this.#db.connect()) as C & Lent
    let broken = false
    // Nobody else listens to a client that is lent out, and an error that nobody hears ends the process.
    const hear = (): void => { broken = true }
    client.on('error', hear)
    try {
      return await run(client)
    } catch (e) {
      broken ||= e instanceof Broken
      return fail(e)
    } finally {
      client.removeListener('error', hear)
      client.release(broken)
    }
  }
}

/** What a pool lends. */
interface Lent {
  on(event: 'error', listener: () => void): unknown
  removeListener(event: 'error', listener: () => void): unknown
  release(destroy: boolean): void
}

function fail(error: unknown): never {
  throw translate(error instanceof Broken ? error.error : error)
}

/** The connection cannot even go back. error: why it had to. */
class Broken {
  constructor(readonly error: unknown, readonly why: unknown) {}
}

const isPool = <C extends PgClient>(db: C | PgPool<C>): db is PgPool<C> => 'idleCount' in db

/** PostgreSQL answers the COMMIT of a transaction in which a statement had failed with ROLLBACK, and node-postgres says nothing. */
async function commit(client: PgClient): Promise<void> {
  const said = Object(await client.query('COMMIT')) as { command?: unknown }
  if (said.command === 'ROLLBACK') throw new Error('fencelock: the transaction was rolled back: one of its statements had failed, and the function went on')
}
