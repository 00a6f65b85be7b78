package io.github.fencelock.shedlock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.fencelock.Fencelock;
import io.github.fencelock.Lease;
import io.github.fencelock.test.FencelockServer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import net.javacrumbs.shedlock.core.ClockProvider;
import net.javacrumbs.shedlock.core.DefaultLockingTaskExecutor;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockingTaskExecutor;
import net.javacrumbs.shedlock.core.SimpleLock;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

class FencelockLockProviderTest {
    private static FencelockServer server;
    private static Fencelock locks;
    private static FencelockLockProvider provider;

    @BeforeAll
    static void start() {
        server = FencelockServer.start();
        locks = Fencelock.connect(server.url());
        provider = new FencelockLockProvider(locks);
    }

    @AfterAll
    static void end() {
        locks.close();
        server.close();
    }

    private static LockConfiguration configuration(String name, Duration most, Duration least) {
        return new LockConfiguration(ClockProvider.now(), name, most, least);
    }

    private static LockConfiguration forLong(String name) {
        return configuration(name, Duration.ofHours(1), Duration.ZERO);
    }

    private static boolean isFree(String name) throws InterruptedException {
        return locks.holder("shedlock/" + name).isEmpty();
    }

    private static void untilFree(String name) throws InterruptedException {
        while (!isFree(name)) {
            Thread.sleep(5);
        }
    }

    @Test
    void oneAtATime() throws Exception {
        for (int i = 0; i < 3; i++) {
            SimpleLock lock = provider.lock(forLong("one")).orElseThrow();
            assertTrue(provider.lock(forLong("one")).isEmpty());
            assertFalse(isFree("one"));
            lock.unlock();
            assertTrue(isFree("one"));
            assertThrows(IllegalStateException.class, lock::unlock);
        }
    }

    @Test
    void atMost() throws Exception {
        SimpleLock lock = provider.lock(configuration("most", Duration.ofMillis(20), Duration.ZERO)).orElseThrow();
        untilFree("most");
        assertTrue(lock.extend(Duration.ofHours(1), Duration.ZERO).isEmpty(), "it is over");
    }

    @Test
    void atLeast() throws Exception {
        SimpleLock lock = provider.lock(configuration("least", Duration.ofHours(1), Duration.ofSeconds(2))).orElseThrow();
        lock.unlock();
        assertTrue(provider.lock(forLong("least")).isEmpty());
        untilFree("least");
    }

    @Test
    void extended() throws Exception {
        SimpleLock lock = provider.lock(configuration("extended", Duration.ofMinutes(4), Duration.ZERO)).orElseThrow();
        SimpleLock longer = lock.extend(Duration.ofHours(1), Duration.ZERO).orElseThrow();
        assertThrows(IllegalStateException.class, lock::unlock);
        assertFalse(isFree("extended"));
        longer.unlock();
        assertTrue(isFree("extended"));
    }

    /** The token that "generic" providers cannot give. */
    @Test
    void jobsHaveTheirTokens() {
        LockingTaskExecutor executor = new DefaultLockingTaskExecutor(provider);
        List<Long> tokens = new ArrayList<>();
        for (int i = 0; i < 2; i++) {
            executor.executeWithLock((Runnable) () -> {
                Lease lease = FencelockLockProvider.currentLease().orElseThrow();
                assertEquals("shedlock/job", lease.name());
                tokens.add(lease.token());
                executor.executeWithLock((Runnable) () -> tokens.add(FencelockLockProvider.currentLease().orElseThrow().token()), forLong("inner"));
                assertEquals(lease, FencelockLockProvider.currentLease().orElseThrow());
            }, forLong("job"));
        }
        assertEquals(4, tokens.size());
        assertEquals(tokens.stream().sorted().toList(), tokens);
        assertEquals(Optional.empty(), FencelockLockProvider.currentLease());
    }

    /** As reactive programs do. */
    @Test
    void anotherThreadMayUnlock() throws Exception {
        SimpleLock lock = provider.lock(forLong("elsewhere")).orElseThrow();
        assertEquals("shedlock/elsewhere", FencelockLockProvider.currentLease().orElseThrow().name());
        Thread other = new Thread(lock::unlock);
        other.start();
        other.join();
        assertTrue(isFree("elsewhere"));
        assertEquals(Optional.empty(), FencelockLockProvider.currentLease());
    }
}
