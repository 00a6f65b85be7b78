package io.github.fencelock.integration;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.fencelock.Fencelock;
import io.github.fencelock.Options;
import io.github.fencelock.test.FencelockServer;
import java.io.InputStream;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ConcurrentModificationException;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Lock;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.springframework.integration.leader.Context;
import org.springframework.integration.leader.DefaultCandidate;
import org.springframework.integration.support.leader.LockRegistryLeaderInitiator;

@Timeout(value = 240, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class FencelockLockRegistryTest {
    private static FencelockServer server;
    private static Fencelock locks;
    private static FencelockLockRegistry one;
    private static FencelockLockRegistry two;

    @BeforeAll
    static void start() {
        server = FencelockServer.start();
        locks = Fencelock.connect(server.url());
        Options o = Options.NONE.ttl(Duration.ofSeconds(3));
        one = new FencelockLockRegistry(locks, "r", o);
        two = new FencelockLockRegistry(locks, "r", o);
    }

    @AfterAll
    static void end() {
        locks.close();
        server.close();
    }

    private static <T> T elsewhere(Callable<T> what) throws Exception {
        FutureTask<T> task = new FutureTask<>(what);
        new Thread(task).start();
        return task.get();
    }

    private static void breakLock(String name) throws Exception {
        String[] address = server.address().split(":");
        try (Socket s = new Socket(address[0], Integer.parseInt(address[1]))) {
            s.getOutputStream().write(("BREAK " + name + "\r\n").getBytes(StandardCharsets.US_ASCII));
            InputStream in = s.getInputStream();
            assertTrue(in.read() != '-');
        }
    }

    @Test
    void reentrant() throws Exception {
        FencelockLockRegistry.RegistryLock lock = one.obtain("re");
        assertSame(lock, one.obtain("re"));
        lock.lock();
        long token = lock.lease().token();
        lock.lockInterruptibly();
        assertTrue(lock.tryLock());
        assertEquals(token, lock.lease().token());
        assertFalse(elsewhere(() -> one.obtain("re").tryLock(10, TimeUnit.MILLISECONDS)));
        for (int i = 0; i < 3; i++) {
            assertFalse(elsewhere(() -> two.obtain("re").tryLock()));
            lock.unlock();
        }
        assertTrue(elsewhere(() -> two.obtain("re").tryLock(4, TimeUnit.MINUTES)));
        assertThrows(IllegalMonitorStateException.class, lock::unlock);
    }

    @Test
    void twoRegistriesTakeTurns() throws Exception {
        Lock lock = one.obtain("turns");
        lock.lock();
        CountDownLatch begun = new CountDownLatch(1);
        FutureTask<Long> other = new FutureTask<>(() -> {
            begun.countDown();
            FencelockLockRegistry.RegistryLock l = two.obtain("turns");
            l.lock();
            long token = l.lease().token();
            l.unlock();
            return token;
        });
        new Thread(other).start();
        begun.await();
        assertFalse(other.isDone());
        long token = one.obtain("turns").lease().token();
        lock.unlock();
        assertTrue(other.get() > token);
    }

    @Test
    void aLossIsTold() throws Exception {
        FencelockLockRegistry.RegistryLock lock = one.obtain("lost");
        lock.lock();
        breakLock("r/lost");
        while (lock.lease().isHeld()) {
            Thread.sleep(5);
        }
        assertThrows(ConcurrentModificationException.class, lock::unlock);
        lock.lock();
        breakLock("r/lost");
        while (lock.lease().isHeld()) {
            Thread.sleep(5);
        }
        assertFalse(lock.tryLock(), "a thread that has it learns of the loss");
        assertThrows(IllegalMonitorStateException.class, lock::unlock);
        assertTrue(lock.tryLock(4, TimeUnit.MINUTES));
        lock.unlock();
    }

    @Test
    void unusedLocksAreForgotten() {
        Lock used = one.obtain("used");
        used.lock();
        Lock unused = one.obtain("unused");
        one.expireUnusedOlderThan(-1);
        assertSame(used, one.obtain("used"));
        assertFalse(unused == one.obtain("unused"));
        used.unlock();
        assertThrows(IllegalArgumentException.class, () -> one.obtain(17));
    }

    /** The framework's own election: it looks at its lock again and again, and revokes the leader whose lock was lost. */
    @Test
    void electsALeader() throws Exception {
        CountDownLatch granted = new CountDownLatch(2);
        CountDownLatch revoked = new CountDownLatch(1);
        LockRegistryLeaderInitiator initiator = new LockRegistryLeaderInitiator(one, new DefaultCandidate("me", "boss") {
            @Override
            public void onGranted(Context ctx) {
                granted.countDown();
            }

            @Override
            public void onRevoked(Context ctx) {
                revoked.countDown();
            }
        });
        initiator.setHeartBeatMillis(50);
        initiator.setBusyWaitMillis(50);
        initiator.start();
        while (granted.getCount() == 2) {
            Thread.sleep(5);
        }
        breakLock("r/boss");
        revoked.await();
        granted.await();
        initiator.destroy();
    }
}
