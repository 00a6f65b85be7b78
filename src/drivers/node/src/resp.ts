// The protocol of Redis (RESP2), as far as fencelock speaks it.

export class ReplyError extends Error {}
export type Reply = string | number | null | ReplyError | Reply[]
export type Words = (string | number)[]

const REPLY_MAX = 64 << 20
const DEPTH_MAX = 8

export function encode(requests: Words[]): string {
  let out = ''
  for (const words of requests) {
    out += `*${words.length}\r\n`
    for (const word of words) {
      const text = String(word)
      out += `$${Buffer.byteLength(text)}\r\n${text}\r\n`
    }
  }
  return out
}

/** Takes bytes as they come, and gives whole replies. */
export class Reader {
  #bytes: Buffer = Buffer.alloc(0)
  #at = 0

  feed(more: Buffer): void {
    this.#bytes = this.#at === this.#bytes.length ? more : Buffer.concat([this.#bytes.subarray(this.#at), more])
    this.#at = 0
    if (this.#bytes.length > REPLY_MAX) throw new Error(`an answer has more than ${REPLY_MAX} bytes`)
  }

  /** undefined: it has not come whole yet. */
  next(): Reply | undefined {
    const begun = this.#at
    const reply = this.#read(0)
    if (reply === undefined) this.#at = begun
    return reply
  }

  #line(): string | undefined {
    const end = this.#bytes.indexOf('\r\n', this.#at, 'latin1')
    if (end < 0) return undefined
    const line = this.#bytes.toString('utf8', this.#at, end)
    this.#at = end + 2
    return line
  }

  #read(depth: number): Reply | undefined {
    const line = this.#line()
    if (line === undefined) return undefined
    const rest = line.slice(1)
    switch (line[0]) {
      case '+': return rest
      case '-': return new ReplyError(rest)
      case ':': return count(rest)
      case '$': return this.#bulk(count(rest))
      case '*': return this.#array(count(rest), depth + 1)
    }
    throw new Error('an answer is not of the protocol of Redis')
  }

  #bulk(length: number): string | null | undefined {
    if (length < 0) return null
    if (this.#bytes.length < this.#at + length + 2) return undefined
    const text = this.#bytes.toString('utf8', this.#at, this.#at + length)
    this.#at += length + 2
    return text
  }

  #array(length: number, depth: number): Reply[] | null | undefined {
    if (length < 0) return null
    if (depth > DEPTH_MAX) throw new Error(`an answer has more than ${DEPTH_MAX} levels`)
    const list: Reply[] = []
    while (list.length < length) {
      const reply = this.#read(depth)
      if (reply === undefined) return undefined
      list.push(reply)
    }
    return list
  }
}

function count(text: string): number {
  if (!/^-?[0-9]{1,19}$/.test(text)) throw new Error('an answer has a wrong number')
  return Number(text)
}

/** One value of an answer that has names: a list of names and values in turn. */
export function field(show: Reply | undefined, name: string): Reply | undefined {
  if (!Array.isArray(show)) return undefined
  const at = show.findIndex((value, i) => i % 2 === 0 && value === name)
  return at < 0 ? undefined : show[at + 1]
}

export const textOf = (reply: Reply | undefined): string => (typeof reply === 'string' ? reply : '')
export const numberOf = (reply: Reply | undefined): number => (typeof reply === 'number' ? reply : 0)
