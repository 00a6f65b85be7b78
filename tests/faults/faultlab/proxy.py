"""TCP proxies on loopback, in one thread with one event loop.

PeerProxy stands in front of the peer port of each node: the cluster is configured with the proxies' addresses. The first bytes of a
stream say which node dials (src/peer/handshake.h: magic, sender's id at 32). A blocked direction stalls, as when a network drops
packets: nothing is closed, and when the block ends the bytes go on.

StoreProxy stands between clients and storage and can hold a write (SET ... FENCE lock token) back: until somebody else has
read under the same lock, whose answer then waits until the held write has been let through and answered. That is the
worst moment there is: the next holder has read, and has not written. With `cut` the writer's connection is closed
while the write is held, so that its outcome is unknown to it."""

import asyncio
import random
import struct
import threading

from harness import PATIENCE_S

MAGIC, HELLO_SIZE, KIND_OFFSET, SENDER_OFFSET = b'fencelok', 808, 18, 32


class Loop:
    """An event loop in a thread of its own."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()
        self.servers = []
        self.thread = threading.Thread(target=self.loop.run_forever, name='proxies', daemon=True)
        self.thread.start()

    def run(self, coroutine, seconds=PATIENCE_S):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(seconds)

    def close(self):
        async def cancel_all():
            for server in self.servers:
                server.close()
            for _ in range(10): # a connection that was being accepted may begin one task more
                tasks = [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                await asyncio.sleep(0)
        self.run(cancel_all())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(PATIENCE_S)
        self.loop.close()


async def _close(writer):
    try:
        writer.close()
    except (OSError, RuntimeError):
        pass


class PeerProxy:
    """Links between nodes. ports: {node id: [(proxy's port, node's own peer port)]}."""

    def __init__(self, loop, ports):
        self.loop, self.ports = loop, ports
        self.blocked = set()   # (from, to)
        self.delay = {}        # (from, to) -> seconds
        self.change = None
        self.stalled = 0       # pieces of traffic that met a block
        self.bytes = 0
        self.writers = set()
        self.hellos = {}       # (from, to, kind of stream) -> its first bytes
        self.damage, self.damaged, self.random = 0.0, 0, random.Random(0)

    def start(self):
        async def listen():
            self.change = asyncio.Condition()
            for node, port, target in ((n, *pair) for n, pairs in self.ports.items() for pair in pairs):
                async def serve(reader, writer, node=node, target=target):
                    await self._serve(node, target, reader, writer)
                self.loop.servers.append(await asyncio.start_server(serve, '127.0.0.1', port))
        self.loop.run(listen())
        return self

    def set(self, blocked=None, delay=None):
        async def change():
            if blocked is not None:
                self.blocked = set(blocked)
            if delay is not None:
                self.delay = dict(delay)
            async with self.change:
                self.change.notify_all()
        self.loop.run(change())

    def cut(self):
        """Resets every connection between nodes, with what was on its way. New ones work. True: it was done."""
        async def change():
            for writer in list(self.writers):
                writer.transport.abort()
        self.loop.run(change())
        return True

    def corrupt(self, share, seed=None):
        """From now on a bit turns around in this share of the pieces of traffic. Returns True, or with a share of 0 how many
        pieces have been damaged since the share was set."""
        async def change():
            self.damage, damaged, self.damaged = share, self.damaged, 0
            if seed is not None:
                self.random = random.Random(seed)
            return True if share else damaged
        return self.loop.run(change())

    def _maybe_damage(self, data):
        if not self.damage or self.random.random() >= self.damage:
            return data
        self.damaged += 1
        spoiled = bytearray(data)
        spoiled[self.random.randrange(len(data))] ^= 1 << self.random.randrange(8)
        return bytes(spoiled)

    async def _pass(self, link):
        if link in self.blocked:
            self.stalled += 1
            async with self.change:
                await self.change.wait_for(lambda: link not in self.blocked)
        if link in self.delay:
            await asyncio.sleep(self.delay[link])

    def greeting(self, _link, hello):
        """What is passed on of the first bytes of whoever dialed."""
        return hello

    def changer(self, link, kind, forth):
        """A function that gets the bytes that one side of a stream sends, and returns (the bytes to pass on, whether the stream ends).
        `forth`: the side that dialed."""
        return lambda data: (self._maybe_damage(data), False)

    async def _pump(self, reader, writer, link, change):
        while True:
            data = await reader.read(65536)
            if not data:
                break
            await self._pass(link)
            self.bytes += len(data)
            data, ends = change(data)
            writer.write(data)
            await writer.drain()
            if ends:
                break
        await self._pass(link)

    async def _serve(self, node, target, reader, writer):
        out = None
        try:
            hello = await asyncio.wait_for(reader.readexactly(HELLO_SIZE), 10)
            if not hello.startswith(MAGIC):
                return
            sender = struct.unpack_from('<Q', hello, SENDER_OFFSET)[0]
            self.hellos[sender, node, hello[KIND_OFFSET]] = hello
            await self._pass((sender, node))
            back, out = await asyncio.open_connection('127.0.0.1', target)
            out.write(self.greeting((sender, node), hello))
            self.writers.update((writer, out))
            kind, forth, other = hello[KIND_OFFSET], (sender, node), (node, sender)
            pumps = [asyncio.ensure_future(self._pump(reader, out, forth, self.changer(forth, kind, True))),
                     asyncio.ensure_future(self._pump(back, writer, other, self.changer(other, kind, False)))]
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
        except (OSError, asyncio.IncompleteReadError, asyncio.TimeoutError):
            pass
        finally:
            self.writers -= {writer, out}
            await _close(writer)
            if out:
                await _close(out)


class _Held:
    def __init__(self, lock, token):
        self.lock, self.token = lock, token
        self.go, self.done, self.read = asyncio.Event(), asyncio.Event(), False


async def _request(reader):
    """One RESP array of bulk strings: (raw bytes, list of arguments)."""
    line = await reader.readuntil(b'\r\n')
    raw, args = [line], []
    if line[:1] != b'*':
        return line, line.split()
    for _ in range(int(line[1:])):
        size = await reader.readuntil(b'\r\n')
        body = await reader.readexactly(int(size[1:]) + 2)
        raw += [size, body]
        args.append(body[:-2])
    return b''.join(raw), args


async def _reply(reader):
    """One answer that is no array (the storage's data commands give none)."""
    line = await reader.readuntil(b'\r\n')
    if line[:1] == b'$' and line[1:2] != b'-':
        return line + await reader.readexactly(int(line[1:]) + 2)
    return line


class StoreProxy:
    """Between clients and storage. on_event(what, **fields) is told about every write that is held and let through."""

    HOLD_MAX_S = 6.0

    def __init__(self, loop, port, target, seed, on_event):
        self.loop, self.port, self.target, self.on_event = loop, port, target, on_event
        self.random = random.Random(seed)
        self.share, self.cut_share = 0.0, 0.0  # of the writes, while the fault is on
        self.held = {}                         # lock -> _Held
        self.let_through_late = 0                      # held until somebody else had read
        self.tasks = set()

    def start(self):
        async def listen():
            self.loop.servers.append(await asyncio.start_server(self._serve, '127.0.0.1', self.port, limit=1 << 21))
        self.loop.run(listen())
        return self

    def set(self, share, cut_share=0.0):
        async def change():
            self.share, self.cut_share = share, cut_share
        self.loop.run(change())

    def let_all_through(self):
        async def change():
            waiting = list(self.held.values())
            for held in waiting:
                held.go.set()
            for held in waiting:
                await asyncio.wait_for(held.done.wait(), PATIENCE_S / 2)
        self.loop.run(change())

    def _wants_to_hold(self, args):
        return (len(args) == 6 and args[0].upper() == b'SET' and args[4] not in self.held
                and self.random.random() < self.share)

    async def _hold(self, args, forward, client):
        """Holds a write, then lets it through. Returns its answer."""
        held = self.held[args[4]] = _Held(args[4], args[5])
        cut = self.random.random() < self.cut_share
        add = args[2].split()[-1].decode()
        self.on_event('held', lock=args[4].decode(), token=int(args[5]), id=add, cut=cut)
        try:
            if cut:
                await _close(client)
            try:
                await asyncio.wait_for(held.go.wait(), self.HOLD_MAX_S)
            except asyncio.TimeoutError:
                pass
            late = held.read # else it was held long enough, or the faults have ended
            answer = await forward()
            self.let_through_late += late
            self.on_event('let through', lock=args[4].decode(), token=int(args[5]), id=add, after_next_read=late,
                          answer=answer[:40].decode(errors='replace').strip())
            return answer
        finally:
            held.done.set()
            if self.held.get(args[4]) is held:
                del self.held[args[4]]

    async def _serve(self, reader, writer):
        out = None
        try:
            back, out = await asyncio.open_connection('127.0.0.1', self.target, limit=1 << 21)
            while True:
                raw, args = await _request(reader)

                async def forward(raw=raw):
                    out.write(raw)
                    return await _reply(back)
                if self._wants_to_hold(args):
                    answer = await self._hold(args, forward, writer)
                else:
                    answer = await forward()
                    await self._after_read(args, answer)
                writer.write(answer)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError, RuntimeError):
            pass
        finally:
            await _close(writer)
            if out:
                await _close(out)

    async def _after_read(self, args, answer):
        """A read that succeeded while a write under the same lock is held: now that write is let through. The
        key is named after its lock, so that a read without a token can be told as well."""
        if args and args[0].upper() == b'GET' and answer[:1] != b'-':
            held = self.held.get(args[1].rpartition(b'-of-')[2])
            if held is not None and (len(args) < 5 or args[4] != held.token):
                held.read = True
                held.go.set()
                await held.done.wait()
