package io.github.fencelock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.locks.ReentrantLock;
import org.junit.jupiter.api.Test;

class PureTest {
    @Test
    void urls() {
        Target t = Target.parse("fencelocks://u:p%40%3a+@a:1,[::1]:65535/");
        assertEquals(new Target(true, List.of(new Target.Address("a", 1), new Target.Address("::1", 65535)), "u", "p@:+"), t);
        assertTrue(!t.toString().contains("p@"), "the password is not shown");
        assertEquals(3, Target.parse("fencelock://a:1,b:2,c:3").addresses().size());
        assertEquals(16, Target.parse("fencelock://" + String.join(",", Collections.nCopies(16, "a:1"))).addresses().size());
        List<String> wrong = List.of("", "redis://a:1", "a:1", "fencelock://", "fencelock://a", "fencelock://a:0", "fencelock://a:65536",
            "fencelock://:1", "fencelock://a:1,", "fencelock://u@a:1", "fencelock://u:@a:1", "fencelock://:p@a:1", "fencelock://u:%4@a:1",
            "fencelock://" + String.join(",", Collections.nCopies(17, "a:1")));
        for (String url : wrong) {
            assertThrows(IllegalArgumentException.class, () -> Target.parse(url), url);
        }
    }

    /** A later attempt has a number, by which the service knows an earlier one that comes late. */
    @Test
    void attempts() {
        List<String> names = Options.NONE.names("lock");
        assertEquals("ACQUIRE lock SESSION owner", String.join(" ", Options.NONE.words(names, "owner", 1, 0)));
        assertEquals("ACQUIRE lock SESSION owner WAIT 1000 ATTEMPT 2", String.join(" ", Options.NONE.words(names, "owner", 2, 1000)));
    }

    @Test
    void limits() {
        Options.NONE.ttl(Duration.ofMillis(50)).ttl(Duration.ofHours(24)).permits(1).permits(1_000_000).value("v".repeat(1024)).waitFor(null);
        Options.NONE.names("n".repeat(255));
        Options.NONE.also("a b c d e f g h i j k l m n o".split(" ")).names("name");
        List<Runnable> wrong = List.of(() -> Options.NONE.ttl(Duration.ofMillis(49)), () -> Options.NONE.ttl(Duration.ofHours(24).plusMillis(1)),
            () -> Options.NONE.ttl(Duration.ofSeconds(Long.MAX_VALUE)), () -> Options.NONE.permits(0), () -> Options.NONE.permits(1_000_001),
            () -> Options.NONE.value("v".repeat(1025)), () -> Options.NONE.names(""), () -> Options.NONE.names("ü".repeat(128)),
            () -> Options.NONE.also("a b c d e f g h i j k l m n o p".split(" ")).names("name"),
            () -> Options.NONE.shared().permits(2).names("name"), () -> Options.NONE.waitFor(Duration.ofMillis(-1)));
        for (Runnable w : wrong) {
            assertThrows(IllegalArgumentException.class, w::run);
        }
        assertEquals(Options.FOREVER, Options.NONE.waitFor(Duration.ofSeconds(Long.MAX_VALUE)).waitMs);
    }

    /** The uptime is rounded down to 10 ms. Time never goes back, and a suspension is not shorter than it was. */
    @Test
    void suspension() {
        long[] monotonic = {1_000_003};
        long[] suspended = {0};
        BootClock clock = new BootClock(() -> monotonic[0], () -> (monotonic[0] + suspended[0]) / 10 * 10);
        long began = clock.now();
        for (long i = 1; i <= 100; i++) {
            monotonic[0]++;
            long now = clock.now();
            assertTrue(now - began >= i && now - began <= i + BootClock.STEP_MS, now - began + " after " + i);
        }
        suspended[0] = 60_000;
        long late = clock.now() - began;
        assertTrue(late >= 60_100 && late <= 60_100 + 2 * BootClock.STEP_MS, late + " ms");
    }

    @Test
    void thisSystemHasAClockThatCountsSuspension() {
        if (System.getProperty("os.name").equals("Linux")) {
            assertEquals("/proc/uptime", BootClock.SYSTEM.name());
        }
        long began = BootClock.SYSTEM.now();
        assertTrue(BootClock.SYSTEM.now() >= began);
    }

    @Test
    void events() {
        Event e = Event.of("lock:a b", "event=granted lock=a%20b token=17 owner=x%25y clock=12");
        assertEquals(new Event("a b", "granted", 17, "x%y", 12), e);
        assertEquals("", Event.of("other", "").kind());
    }

    /** An answer to an open that comes after the deadline revives no lease of the session. */
    @Test
    void openedTooLate() {
        var lock = new ReentrantLock();
        Session s = new Session(null, null, BootClock.SYSTEM, "test", 1000, lock, lock.newCondition());
        s.opened(BootClock.SYSTEM.now());
        assertEquals(State.SAFE, s.state());
        s.lost();
        assertThrows(RefusedException.class, () -> s.opened(BootClock.SYSTEM.now()));
        assertEquals(State.LOST, s.state());
    }

    @Test
    void namesAreCountedInBytes() {
        assertEquals(254, "ü".repeat(127).getBytes(StandardCharsets.UTF_8).length);
        Options.NONE.names("ü".repeat(127));
        assertEquals("\uE000", Session.keyOf(List.of("\uD83D\uDE00", "\uE000")), "the order of chars is another one");
    }
}
