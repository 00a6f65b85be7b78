package io.github.fencelock;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;

/** How a lock is acquired. Immutable: each method returns other options. {@code Options.NONE.ttl(ofSeconds(10)).waitFor(ofSeconds(30))} */
public final class Options {
    /** TTL 10 s, no wait, exclusive. */
    public static final Options NONE = new Options(10_000, 0, false, 0, List.of(), "");

    static final long FOREVER = Long.MAX_VALUE;
    private static final int NAME_MAX = 255;
    private static final int ALSO_MAX = 15;
    private static final int PERMITS_MAX = 1_000_000;
    private static final int VALUE_MAX = 1024;
    private static final long TTL_MIN_MS = 50;
    private static final long TTL_MAX_MS = 24 * 3600 * 1000L;

    final long ttlMs;
    final long waitMs;
    final boolean shared;
    final int permits;
    final List<String> also;
    final String value;

    private Options(long ttlMs, long waitMs, boolean shared, int permits, List<String> also, String value) {
        this.ttlMs = ttlMs;
        this.waitMs = waitMs;
        this.shared = shared;
        this.permits = permits;
        this.also = also;
        this.value = value;
    }

    /**
     * How long the lock outlives a process that dies. It is renewed while the lease is held. Leases of one TTL share one renewal.
     *
     * @param ttl 50 ms to a day; 10 s by default
     * @return other options
     */
    public Options ttl(Duration ttl) {
        long ms = ttl.compareTo(Duration.ofDays(2)) < 0 ? ttl.toMillis() : TTL_MAX_MS + 1;
        if (ms < TTL_MIN_MS || ms > TTL_MAX_MS) {
            throw new IllegalArgumentException("ttl " + ttl + ": give 50 ms to 24 hours");
        }
        return new Options(ms, waitMs, shared, permits, also, value);
    }

    /**
     * How long to wait in the queue while others hold the lock.
     *
     * @param wait not at all by default; null: for ever
     * @return other options
     */
    public Options waitFor(Duration wait) {
        if (wait != null && wait.isNegative()) {
            throw new IllegalArgumentException("waitFor " + wait + ": give 0 or more, or null to wait for ever");
        }
        long ms = wait == null || wait.compareTo(Duration.ofDays(36500)) > 0 ? FOREVER : wait.toMillis();
        return new Options(ttlMs, ms, shared, permits, also, value);
    }

    /**
     * Together with other readers. A reader's token guards no write: see docs/PROTOCOL.md.
     *
     * @return other options
     */
    public Options shared() {
        return new Options(ttlMs, waitMs, true, permits, also, value);
    }

    /**
     * Makes the lock a semaphore. Every client of the lock gives the same number.
     *
     * @param n how many clients hold it at a time; 1 to 1,000,000
     * @return other options
     */
    public Options permits(int n) {
        if (n < 1 || n > PERMITS_MAX) {
            throw new IllegalArgumentException("permits(" + n + "): give 1 to " + PERMITS_MAX);
        }
        return new Options(ttlMs, waitMs, shared, n, also, value);
    }

    /**
     * Takes further locks, all or none, under one token.
     *
     * @param names 15 at most
     * @return other options
     */
    public Options also(String... names) {
        List<String> all = new ArrayList<>(also);
        all.addAll(List.of(names));
        return new Options(ttlMs, waitMs, shared, permits, List.copyOf(all), value);
    }

    /**
     * What {@link Fencelock#holder} tells others of the lease, such as the name of this process.
     *
     * @param text 1024 bytes at most
     * @return other options
     */
    public Options value(String text) {
        int n = text.getBytes(StandardCharsets.UTF_8).length;
        if (n > VALUE_MAX) {
            throw new IllegalArgumentException("value has at most " + VALUE_MAX + " bytes, not " + n);
        }
        return new Options(ttlMs, waitMs, shared, permits, also, text);
    }

    /** All names of an acquire, checked. */
    List<String> names(String name) {
        List<String> names = new ArrayList<>(List.of(name));
        names.addAll(also);
        for (String n : names) {
            int length = n.getBytes(StandardCharsets.UTF_8).length;
            if (length < 1 || length > NAME_MAX) {
                throw new IllegalArgumentException("the name of a lock has 1 to " + NAME_MAX + " bytes, not " + length);
            }
        }
        if (also.size() > ALSO_MAX) {
            throw new IllegalArgumentException("also takes at most " + ALSO_MAX + " names, not " + also.size());
        }
        if (shared && permits != 0 || !also.isEmpty() && (shared || permits != 0)) {
            throw new IllegalArgumentException("shared, permits and also exclude each other");
        }
        return List.copyOf(names);
    }

    /** May several leases of one process hold the lock at a time? */
    boolean severalHold() {
        return shared || permits > 1;
    }

    /** The request; an attempt above 1 is one that is sent again. */
    List<String> words(List<String> names, String owner, long attempt, long waitMs) {
        List<String> w = new ArrayList<>(List.of("ACQUIRE", names.get(0), "SESSION", owner));
        if (waitMs > 0) {
            w.addAll(List.of("WAIT", Long.toString(waitMs)));
        }
        for (String n : names.subList(1, names.size())) {
            w.addAll(List.of("ALSO", n));
        }
        if (shared) {
            w.addAll(List.of("MODE", "SHARED"));
        }
        if (permits != 0) {
            w.addAll(List.of("PERMITS", Integer.toString(permits)));
        }
        if (!value.isEmpty()) {
            w.addAll(List.of("VALUE", value));
        }
        if (attempt > 1) {
            w.addAll(List.of("ATTEMPT", Long.toString(attempt)));
        }
        return w;
    }
}
