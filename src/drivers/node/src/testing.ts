import { spawn } from 'node:child_process'
import { mkdtemp, rm } from 'node:fs/promises'
import { createServer, type AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'

/** A node of its own, for a test. */
export interface TestNode extends AsyncDisposable {
  /** For connect(). */
  readonly url: string
  stop(): Promise<void>
}

/** Starts a node (the program FENCELOCKD, or fencelockd of the PATH) with an empty directory and free ports. `await using`, or stop(), ends it. */
export async function startNode(): Promise<TestNode> {
  const data = await mkdtemp(join(tmpdir(), 'fencelock-'))
  const program = process.env['FENCELOCKD'] ?? 'fencelockd'
  const child = spawn(program, ['--data', join(data, 'node'), '--listen', '127.0.0.1:0', '--peer', await freeAddress()], { stdio: ['ignore', 'pipe', 'inherit'] })
  const ended = new Promise<void>((resolve) => child.once('close', () => resolve()))
  const stop = async (): Promise<void> => {
    child.kill('SIGKILL')
    await ended
    await rm(data, { recursive: true, force: true })
  }
  const address = await new Promise<string>((resolve) => {
    const lines = createInterface(child.stdout)
    lines.on('line', (line) => { // to the end: the node must never wait for a reader
      const at = line.indexOf('listening on ')
      if (at >= 0) resolve(line.slice(at + 'listening on '.length).trim())
    })
    child.once('error', () => resolve(''))
    void ended.then(() => resolve(''))
  })
  if (!address) {
    await rm(data, { recursive: true, force: true })
    throw new Error(`fencelock: ${program} ended before it was ready; its log stands above: install fencelock, or set FENCELOCKD to the program`)
  }
  return { url: 'fencelock://' + address, stop, [Symbol.asyncDispose]: stop }
}

async function freeAddress(): Promise<string> {
  const server = createServer()
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  await new Promise((resolve) => server.close(resolve))
  return `127.0.0.1:${port}`
}
