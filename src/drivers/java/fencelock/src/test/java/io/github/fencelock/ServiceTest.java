package io.github.fencelock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.github.fencelock.test.FencelockServer;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.reflect.Method;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Scanner;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.ReentrantLock;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** With a node of the service. */
@Timeout(value = 240, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class ServiceTest {
    private static final Options LONG = Options.NONE.ttl(Duration.ofHours(1));
    private static final Options WAITS = LONG.waitFor(Duration.ofMinutes(4));

    private static FencelockServer server;
    private static Fencelock locks;

    @BeforeAll
    static void start() {
        server = FencelockServer.start();
        locks = Fencelock.connect(server.url());
    }

    @AfterAll
    static void end() {
        locks.close();
        server.close();
    }

    /** An operator's BREAK, of which the holder hears at its next renewal. */
    private static void breakLock(String name) throws Exception {
        Target t = Target.parse(server.url());
        try (Resp r = Resp.open(t, t.addresses().get(0), null, "operator")) {
            r.write(List.of(List.of("BREAK", name)));
            assertFalse(r.read() instanceof Resp.Failure);
        }
    }

    private static void until(Callable<Boolean> condition) throws Exception {
        while (!condition.call()) {
            Thread.sleep(5);
        }
    }

    private static boolean waits(String name) throws Exception {
        Target t = Target.parse(server.url());
        try (Resp r = Resp.open(t, t.addresses().get(0), null, "watcher")) {
            r.write(List.of(List.of("SHOW", name)));
            return Long.valueOf(1).equals(Session.field(r.read(), "waiters"));
        }
    }

    @Test
    void lossInterruptsTheBody() throws Exception {
        AtomicReference<Throwable> seen = new AtomicReference<>();
        CountDownLatch told = new CountDownLatch(1);
        locks.with("broken", Options.NONE.ttl(Duration.ofSeconds(3)), lease -> {
            lease.onLost(told::countDown);
            breakLock("broken");
            try {
                Thread.sleep(240_000);
            } catch (InterruptedException e) {
                seen.set(e);
            }
            assertTrue(lease.isLost());
            assertThrows(LostException.class, lease::check);
            assertEquals(State.LOST, lease.state());
            assertEquals(Duration.ZERO, lease.remaining());
        });
        assertTrue(seen.get() instanceof InterruptedException);
        told.await();
        assertFalse(Thread.interrupted());
    }

    /** The body does not notice the interrupt: what comes behind the block must not be interrupted. */
    @Test
    void lossInterruptsNothingBehindTheBlock() throws Exception {
        locks.with("broken-late", Options.NONE.ttl(Duration.ofSeconds(3)), lease -> {
            breakLock("broken-late");
            untilInterrupted(lease);
        });
        assertFalse(Thread.currentThread().isInterrupted());
    }

    private static void untilInterrupted(Lease lease) {
        while (!lease.isLost() || !Thread.currentThread().isInterrupted()) {
            Thread.onSpinWait();
        }
    }

    @Test
    void closeKeepsTheErrorOfTheBodyAndAnInterruptOfOthers() throws Exception {
        IllegalStateException mine = new IllegalStateException("mine");
        assertEquals(mine, assertThrows(IllegalStateException.class, () -> locks.with("of-the-body", LONG, lease -> {
            throw mine;
        })));
        locks.with("interrupted", LONG, lease -> Thread.currentThread().interrupt());
        assertTrue(Thread.interrupted());
        assertTrue(locks.holder("interrupted").isEmpty(), "an interrupted thread releases, too");
    }

    @Test
    void releaseTells() throws Exception {
        Lease lease = locks.acquire("released", LONG.value("me"));
        assertEquals("me", locks.holder("released").orElseThrow().value());
        assertEquals(lease.token(), locks.holder("released").orElseThrow().token());
        boolean[] told = {false};
        lease.onLost(() -> told[0] = true);
        lease.release();
        assertThrows(ReleasedException.class, lease::check);
        assertThrows(ReleasedException.class, lease::release);
        assertFalse(lease.isLost() || lease.isHeld() || told[0]);
        lease.close();
    }

    @Test
    void anInterruptEndsAWait() throws Exception {
        try (Lease held = locks.acquire("waited-for", LONG)) {
            AtomicReference<Throwable> error = new AtomicReference<>();
            Thread waiter = new Thread(() -> {
                try {
                    locks.acquire("waited-for", LONG.ttl(Duration.ofMinutes(59)).waitFor(null));
                } catch (Throwable e) {
                    error.set(e);
                }
            });
            waiter.start();
            until(() -> waits("waited-for"));
            waiter.interrupt();
            waiter.join();
            assertTrue(error.get() instanceof InterruptedException, String.valueOf(error.get()));
            until(() -> !waits("waited-for"));
            held.check();
        }
        until(() -> locks.holder("waited-for").isEmpty());
    }

    @Test
    void futures() throws Exception {
        Lease held = locks.acquireAsync("future", LONG).get();
        CompletableFuture<Lease> second = locks.acquireAsync("future", LONG.ttl(Duration.ofMinutes(59)).waitFor(null));
        until(() -> waits("future"));
        assertTrue(second.cancel(true));
        until(() -> !waits("future"));
        CompletableFuture<Lease> third = locks.acquireAsync("future", WAITS);
        CompletableFuture.runAsync(held::release).get(); // another thread: the owner is the lease
        third.get().release();
        assertThrows(IllegalArgumentException.class, () -> locks.acquireAsync("", LONG));
    }

    @Test
    void asLock() throws Exception {
        FencedLock lock = locks.asLock("as-lock", LONG);
        FencedLock other = locks.asLock("as-lock", LONG);
        long first = lock.lockAndGetFence();
        assertEquals(first, lock.lease().token());
        assertFalse(lock.tryLock(), "it is not reentrant");
        assertFalse(other.tryLock(10, TimeUnit.MILLISECONDS));
        Thread t = new Thread(lock::unlock); // any thread
        t.start();
        t.join();
        assertThrows(IllegalMonitorStateException.class, lock::unlock);
        assertTrue(other.tryLock());
        assertTrue(other.lease().token() > first);
        assertTrue(other.isHeld());
        other.unlock();
        lock.lockInterruptibly();
        lock.unlock();
        Thread.currentThread().interrupt();
        lock.lock(); // it does not give up
        assertTrue(Thread.interrupted());
        lock.unlock();
        assertThrows(UnsupportedOperationException.class, lock::newCondition);
    }

    /** A lost lock that was not unlocked yet: the late unlock gives back nothing of the next holder. */
    @Test
    void lateUnlock() throws Exception {
        FencedLock lock = locks.asLock("late", Options.NONE.ttl(Duration.ofSeconds(3)));
        lock.lock();
        Lease lost = lock.lease();
        breakLock("late");
        until(lost::isLost);
        assertFalse(lock.isHeld());
        CompletableFuture<Long> next = CompletableFuture.supplyAsync(lock::lockAndGetFence);
        lock.unlock();
        assertTrue(next.get() > lost.token());
        assertTrue(lock.isHeld());
        lock.unlock();
    }

    @Test
    void elections() throws Exception {
        Options o = Options.NONE.ttl(Duration.ofSeconds(3));
        LinkedBlockingQueue<Long> terms = new LinkedBlockingQueue<>();
        Election e = locks.elect("boss", o, (Lease lease) -> {
            terms.add(lease.token());
            Thread.sleep(240_000);
        });
        long first = terms.take();
        assertTrue(e.isLeader());
        breakLock("boss");
        assertTrue(terms.take() > first, "it stands again");
        e.close();
        assertFalse(e.isLeader());
        assertTrue(locks.holder("boss").isEmpty());
        assertNull(e.over().toCompletableFuture().get());

        Election resigns = locks.elect("boss", o, lease -> { });
        resigns.join();
        Election fails = locks.elect("boss", o, lease -> {
            throw new IllegalStateException("mine");
        });
        assertThrows(ExecutionException.class, () -> fails.over().toCompletableFuture().get());
    }

    @Test
    void virtualThreads() throws Exception {
        Method ofVirtual;
        try {
            ofVirtual = Thread.class.getMethod("startVirtualThread", Runnable.class);
        } catch (NoSuchMethodException e) {
            assumeTrue(false, "this Java has no virtual threads");
            return;
        }
        int n = 200;
        CountDownLatch done = new CountDownLatch(n);
        int[] counter = {0};
        for (int i = 0; i < n; i++) {
            ofVirtual.invoke(null, (Runnable) () -> {
                try (Lease lease = locks.acquire("virtual", WAITS)) {
                    lease.check();
                    counter[0]++;
                } catch (InterruptedException e) {
                    Thread.currentThread().interrupt();
                }
                done.countDown();
            });
        }
        done.await();
        assertEquals(n, counter[0]);
    }

    @Test
    void closeEndsAll() throws Exception {
        Fencelock own = Fencelock.connect(server.url());
        Lease lease = own.acquire("of-a-client", LONG);
        own.close();
        assertThrows(LostException.class, lease::check);
        assertThrows(ClosedException.class, () -> own.acquire("of-a-client", LONG));
        assertTrue(locks.holder("of-a-client").isEmpty());
    }

    private static void signal(FencelockServer node, String name) throws Exception {
        assertEquals(0, new ProcessBuilder("kill", "-" + name, Long.toString(node.process().pid())).start().waitFor());
    }

    /** Else its lock would stay taken until the TTL is over. The node stands still, so the session is being opened when it is closed. */
    @Test
    void closeEndsASessionThatIsBeingOpened() throws Exception {
        try (FencelockServer node = FencelockServer.start()) {
            Threads threads = new Threads();
            Nodes nodes = new Nodes(Target.parse(node.url()), null, "test", threads, BootClock.SYSTEM);
            ReentrantLock lock = new ReentrantLock();
            Session s = new Session(nodes, threads, BootClock.SYSTEM, "test", 3_600_000, lock, lock.newCondition());
            long until = BootClock.SYSTEM.now() + 240_000;
            signal(node, "STOP");
            FutureTask<Boolean> opened = new FutureTask<>(() -> {
                s.open(until);
                return true;
            });
            Thread opener = threads.start("opener", opened);
            until(() -> opener.getState() == Thread.State.TIMED_WAITING);
            FutureTask<Boolean> closed = new FutureTask<>(() -> {
                s.close(until);
                return true;
            });
            Thread closer = threads.start("closer", closed);
            until(() -> closer.getState() == Thread.State.TIMED_WAITING || closed.isDone());
            signal(node, "CONT");
            assertTrue(closed.get());
            opener.join();
            try (Resp r = Resp.open(Target.parse(node.url()), Target.parse(node.url()).addresses().get(0), null, "watcher")) {
                r.write(List.of(List.of("SESSION", "LIST")));
                assertEquals(List.of(), ((List<?>) r.read()).get(1));
            }
            nodes.close();
        }
    }

    /** Which lock, and which node: the text of an error is all that a log has. */
    @Test
    void errorsSayWhich() throws Exception {
        Lease lease = locks.acquire("which", LONG);
        NotAcquiredException held = assertThrows(NotAcquiredException.class, () -> locks.acquire("free", LONG.also("which")));
        assertEquals("another client holds the lock free or which", held.getMessage());
        lease.release();
        ReleasedException released = assertThrows(ReleasedException.class, lease::check);
        assertEquals("the lock which with token " + lease.token() + " was released", released.getMessage());
        Fencelock own = Fencelock.connect(server.url());
        Lease lost = own.acquire("which", LONG);
        own.close();
        String text = assertThrows(LostException.class, lost::check).getMessage();
        assertTrue(text.startsWith("the lock which with token " + lost.token() + " is lost"), text);
        FencelockServer gone = FencelockServer.start();
        gone.close();
        String address = gone.address();
        Nodes nodes = new Nodes(Target.parse("fencelock://" + address), null, "test", new Threads(), BootClock.SYSTEM);
        Nodes.Request ping = Nodes.Request.now(1000, List.of(List.of("PING")));
        String refused = address + ": java.net.ConnectException: Connection refused";
        until(() -> assertThrows(UnavailableException.class, () -> nodes.ask(ping, BootClock.SYSTEM.now() + 1000)).getMessage().contains(refused));
    }

    /** By a node, after one that has heard the request and did not answer: that one may have done it. */
    @Test
    void aRefusedLogin() throws Exception {
        Threads threads = new Threads();
        try (ServerSocket node = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            threads.start("a node that hears", () -> {
                try (Socket s = node.accept(); Scanner heard = new Scanner(s.getInputStream(), StandardCharsets.UTF_8)) {
                    s.getOutputStream().write("+OK\r\n+OK\r\n".getBytes(StandardCharsets.UTF_8)); // to the login, and to the name
                    heard.findWithinHorizon("PING", 0);
                } catch (IOException e) {
                    throw new UncheckedIOException(e);
                }
            });
            Target both = Target.parse("fencelock://job:wrong@127.0.0.1:" + node.getLocalPort() + "," + server.address());
            Nodes nodes;
            do {
                nodes = new Nodes(both, null, "test", threads, BootClock.SYSTEM);
            } while (nodes.preferred() != 0); // the first one it asks
            Nodes asked = nodes;
            Nodes.Request ping = Nodes.Request.now(240_000, List.of(List.of("PING")));
            UncertainException e = assertThrows(UncertainException.class, () -> asked.ask(ping, BootClock.SYSTEM.now() + 240_000));
            assertTrue(e.getCause() instanceof RefusedException r && r.word().equals("WRONGPASS"), e.getMessage());
            nodes.close();
        }
    }
}
