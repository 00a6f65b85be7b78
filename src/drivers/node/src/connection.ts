import { connect as connectPlain, type Socket } from 'node:net'
import { connect as connectTls, type ConnectionOptions } from 'node:tls'
import { Reader, ReplyError, encode, type Reply, type Words } from './resp'

/** The request was surely not sent. */
export class NotSent extends Error {}

export interface Place {
  host: string
  port: number
  user: string
  password: string
  label: string
  tls: ConnectionOptions | undefined
}

interface Exchange {
  left: number
  replies: Reply[]
  done: (replies: Reply[]) => void
  failed: (error: Error) => void
}

/** A connection for one exchange at a time. It reconnects and repeats nothing, so that nodes.ts alone decides which attempt a request is.
 * While nothing is under way it keeps no process alive. */
export class Connection {
  /** Called once, when the connection has ended. */
  onEnd: () => void = () => {}
  /** Takes replies that nobody asked for: the events of a subscription. */
  onEvent: ((reply: Reply) => void) | undefined
  #socket: Socket
  #opened: Promise<void>
  #reader = new Reader()
  #under: Exchange | undefined
  #why: Error | undefined

  constructor(place: Place) {
    const at = { host: place.host, port: place.port }
    this.#socket = place.tls ? connectTls({ servername: isName(place.host) ? place.host : '', ...place.tls, ...at }) : connectPlain(at)
    this.#socket.setNoDelay(true)
    this.#socket.setKeepAlive(true, 15000)
    this.#opened = this.#open(place)
    this.#opened.catch(() => {})
  }

  async #open(place: Place): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      this.#socket.once(place.tls ? 'secureConnect' : 'connect', resolve)
      this.#socket.on('error', (e) => this.end(e))
      this.#socket.on('close', () => {
        reject(new NotSent('no connection', { cause: this.#why }))
        this.end(new Error('the node has closed the connection'))
      })
    })
    this.#socket.on('data', (bytes: Buffer) => this.#heard(bytes))
    try {
      if (place.user) await this.#send([['AUTH', place.user, place.password]])
      await this.#send([['CLIENT', 'SETNAME', place.label]]).catch((e: unknown) => {
        if (!(e instanceof ReplyError)) throw e // a node that wants no name has answered
      })
    } catch (e) {
      this.end(new Error('the login failed'))
      throw e instanceof ReplyError ? e : new NotSent('the login has no answer', { cause: e })
    }
  }

  #heard(bytes: Buffer): void {
    try {
      this.#reader.feed(bytes)
      for (let reply = this.#reader.next(); reply !== undefined; reply = this.#reader.next()) this.#take(reply)
    } catch (e) {
      this.end(e instanceof Error ? e : new Error(String(e)))
    }
  }

  #take(reply: Reply): void {
    const x = this.#under
    if (!x) {
      if (!this.onEvent) throw new Error('an answer that nobody asked for')
      this.onEvent(reply)
      return
    }
    x.replies.push(reply)
    if (--x.left > 0) return
    this.#under = undefined
    const error = x.replies.find((r) => r instanceof ReplyError)
    if (error instanceof ReplyError) x.failed(error)
    else x.done(x.replies)
  }

  #send(requests: Words[]): Promise<Reply[]> {
    return new Promise((done, failed) => {
      if (this.#why) return failed(new NotSent('no connection', { cause: this.#why }))
      this.#under = { left: requests.length, replies: [], done, failed }
      this.#socket.write(encode(requests))
    })
  }

  /** Sends requests together, and returns their replies. The first that is an error is thrown as ReplyError. */
  async exchange(requests: Words[]): Promise<Reply[]> {
    this.#socket.ref()
    try {
      await this.#opened
      return await this.#send(requests)
    } finally {
      if (!this.onEvent) this.#socket.unref()
    }
  }

  write(words: Words): void {
    if (!this.#why) this.#socket.write(encode([words]))
  }

  /** The reader is slower than the events. */
  pause(): void {
    this.#socket.pause()
  }

  resume(): void {
    this.#socket.resume()
  }

  get ended(): boolean {
    return this.#why !== undefined
  }

  end(why: Error): void {
    if (this.#why) return
    this.#why = why
    this.#socket.destroy()
    const x = this.#under
    this.#under = undefined
    x?.failed(why)
    this.onEnd()
  }
}

const isName = (host: string): boolean => !/^[0-9.]+$|:/.test(host) // SNI has no numbers
