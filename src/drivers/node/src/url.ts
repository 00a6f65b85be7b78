const NODES_MAX = 16

/** What a URL says: fencelock://[USER:PASSWORD@]HOST:PORT[,HOST:PORT...][/], or fencelocks:// for TLS. */
export interface Target {
  tls: boolean
  addresses: { host: string; port: number }[]
  user: string
  password: string
}

/** Never quotes the URL in its errors, since a password may stand in it. */
export function parse(text: string): Target {
  const found = /^fencelock(s?):\/\/(?:(.*)@)?([^@]*?)\/?$/.exec(text)
  if (!found) throw wrong('it is of another kind')
  const target: Target = { tls: found[1] === 's', addresses: [], user: '', password: '' }
  if (found[2] !== undefined) {
    const [user = '', ...password] = found[2].split(':')
    try {
      target.user = decodeURIComponent(user)
      target.password = decodeURIComponent(password.join(':'))
    } catch {
      throw wrong('a % of the user or the password has no two hex digits behind it')
    }
    if (!target.user || !target.password) throw wrong('the user or the password is missing')
  }
  for (const address of (found[3] ?? '').split(',')) {
    const parts = /^(?:\[([0-9a-fA-F:.%]+)\]|([^:\[\]\s]+)):([0-9]{1,5})$/.exec(address)
    const port = Number(parts?.[3])
    if (!parts || port < 1 || port > 65535) throw wrong(`${JSON.stringify(address)} is no HOST:PORT`)
    target.addresses.push({ host: parts[1] ?? parts[2] ?? '', port })
  }
  if (target.addresses.length > NODES_MAX) throw wrong(`it names ${target.addresses.length} nodes, and ${NODES_MAX} are the most`)
  return target
}

const wrong = (why: string): TypeError =>
  new TypeError(`fencelock: the URL is wrong: ${why}: write fencelock://HOST:PORT, or fencelocks://USER:PASSWORD@HOST:PORT,HOST:PORT`)
