package io.github.fencelock;

import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.LongSupplier;

/**
 * Milliseconds of a clock that goes on while the machine is suspended. {@link System#nanoTime()} does not, and Java has no call for the one
 * that does. On Linux /proc/uptime counts suspension, in steps of 10 ms. So this is nanoTime, and the time that it is behind the uptime is
 * added. The uptime is rounded down, hence it shows too little by up to a step: after a suspension one step is added, since a lease
 * that ends early is safe.
 */
final class BootClock {
    static final long STEP_MS = 10;
    static final BootClock SYSTEM = new BootClock(() -> System.nanoTime() / 1_000_000, uptime());

    private final LongSupplier monotonic;
    private final LongSupplier uptime; // null: there is none here
    private final ReentrantLock lock = new ReentrantLock();
    private long ahead = Long.MIN_VALUE;

    BootClock(LongSupplier monotonic, LongSupplier uptime) {
        this.monotonic = monotonic;
        this.uptime = uptime;
    }

    long now() {
        if (uptime == null) {
            return monotonic.getAsLong();
        }
        lock.lock();
        try {
            long up = uptime.getAsLong();
            long now = monotonic.getAsLong(); // read last, so a pause between the two does not look like a suspension
            long seen = up - now;
            if (seen > ahead) {
                ahead = ahead != Long.MIN_VALUE && seen > ahead + STEP_MS ? seen + STEP_MS : seen;
            }
            return now + ahead;
        } finally {
            lock.unlock();
        }
    }

    /** The name of the clock that leases are counted on. */
    String name() {
        return uptime != null ? "/proc/uptime" : "the monotonic clock of Java, which may stand still in a suspension";
    }

    // A RandomAccessFile is not closed by an interrupt, as a channel is.
    private static LongSupplier uptime() {
        try {
            RandomAccessFile file = new RandomAccessFile("/proc/uptime", "r");
            byte[] text = new byte[64];
            read(file, text);
            return () -> {
                try {
                    return read(file, text);
                } catch (IOException e) {
                    throw new IllegalStateException("/proc/uptime cannot be read any more", e);
                }
            };
        } catch (IOException | NumberFormatException e) {
            return null;
        }
    }

    private static long read(RandomAccessFile file, byte[] text) throws IOException {
        file.seek(0);
        int n = file.read(text);
        String first = new String(text, 0, Math.max(n, 0), StandardCharsets.US_ASCII).split(" ", 2)[0];
        int dot = first.indexOf('.');
        return Long.parseLong(first.substring(0, dot)) * 1000 + Long.parseLong(first.substring(dot + 1)) * 10;
    }
}
