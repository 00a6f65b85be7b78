package io.github.fencelock;

import java.nio.file.Path;
import java.security.NoSuchAlgorithmException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;
import java.util.function.LongSupplier;
import javax.net.ssl.SSLContext;

/**
 * A client; one for each process. All its leases of one TTL are one session at the service, and so one renewal. Any thread may use it.
 *
 * <pre>{@code
 * Fencelock locks = Fencelock.connect("fencelock://10.0.0.1:7401,10.0.0.2:7401,10.0.0.3:7401");
 * try (Lease lease = locks.acquire("account/42", ofSeconds(10), ofSeconds(30))) {
 *     lease.onLost(worker::cancel);
 *     write(lease.token());
 * }
 * }</pre>
 */
public final class Fencelock implements AutoCloseable {
    private static final long PATIENCE_MS = 10_000; // for an answer, on top of the wait
    private static final long WAIT_AT_ONCE_MS = 24 * 3600 * 1000L; // the longest wait that one request may ask for
    private static final long CLOSE_MS = 2000;

    private final Threads threads = new Threads();
    private final BootClock clock = BootClock.SYSTEM;
    private final String label = label();
    private final Nodes nodes;
    private final ReentrantLock lock = new ReentrantLock(); // of all sessions, too
    private final Condition freed = lock.newCondition();
    private final Map<Long, List<Session>> sessions = new HashMap<>(); // by TTL
    private boolean closed;

    private Fencelock(Target target, SSLContext tls) {
        nodes = new Nodes(target, target.tls() ? tls.getSocketFactory() : null, label, threads, clock);
    }

    /**
     * Reads the URL: {@code fencelock://HOST:PORT,HOST:PORT}, or {@code fencelocks://USER:PASSWORD@HOST:PORT} for TLS and a login. It
     * connects to nobody yet. With TLS the JVM's authorities are trusted.
     *
     * @param url names the nodes
     * @return a client
     */
    public static Fencelock connect(String url) {
        try {
            return connect(url, SSLContext.getDefault());
        } catch (NoSuchAlgorithmException e) {
            throw new IllegalStateException("this JVM has no TLS", e);
        }
    }

    /**
     * The same with certificates of your own.
     *
     * @param url names the nodes
     * @param tls knows the authorities, and a certificate of this client if it needs one
     * @return a client
     */
    public static Fencelock connect(String url, SSLContext tls) {
        return new Fencelock(Target.parse(url), tls);
    }

    /** The name of this process for the operators of the service. */
    private static String label() {
        String command = System.getProperty("sun.java.command", "java").split(" ", 2)[0];
        String name = String.valueOf(Path.of(command).getFileName()).replaceAll("[^!-~]", "_");
        return name.substring(0, Math.min(name.length(), 60)) + "-" + ProcessHandle.current().pid();
    }

    /** @return the name of the clock that leases are counted on: whether it goes on in a suspension */
    public String clockName() {
        return clock.name();
    }

    // --- acquire --------------------------------------------------------------------------------------------------------------------

    /**
     * Takes the lock.
     *
     * @param name 1 to 255 bytes
     * @param ttl how long the lock outlives a process that dies; 50 ms to a day
     * @param wait how long to wait while others hold it, zero or more; null: for ever
     * @return the lease, which is renewed until it is closed
     * @throws NotAcquiredException when others held it for the whole wait
     * @throws UnavailableException when no node served for ten seconds beyond the wait
     * @throws RefusedException when the service refuses it
     * @throws InterruptedException when this thread is interrupted; nothing stays held
     */
    public Lease acquire(String name, Duration ttl, Duration wait) throws InterruptedException {
        return acquire(name, Options.NONE.ttl(ttl).waitFor(wait));
    }

    /**
     * Takes the lock. Whatever it gives but a lease, nothing stays held: an attempt without an answer is settled in the background.
     *
     * @param name 1 to 255 bytes
     * @param options TTL, wait and others
     * @return the lease, which is renewed until it is closed
     * @throws InterruptedException when this thread is interrupted
     */
    public Lease acquire(String name, Options options) throws InterruptedException {
        Session.Wanted w = new Session.Wanted(options.names(name), options);
        long now = clock.now();
        boolean forever = options.waitMs == Options.FOREVER;
        long end = forever ? LeaseState.NEVER : now + options.waitMs;
        long until = forever ? LeaseState.NEVER : end + PATIENCE_MS;
        LongSupplier left = () -> Math.min(Math.max(end - clock.now(), 0), WAIT_AT_ONCE_MS);
        Set<Session> avoid = new HashSet<>();
        while (true) {
            Session s = enter(w, avoid, end, until);
            Lease lease = take(s, w, left, until, avoid);
            if (lease != null) {
                return lease;
            }
        }
    }

    /** One request in a session; null: ask again. */
    private Lease take(Session s, Session.Wanted w, LongSupplier left, long until, Set<Session> avoid) throws InterruptedException {
        boolean open = true; // whether the request may still take the lock
        try {
            long token = s.take(w, left, until);
            open = false;
            if (token != 0) {
                Lease lease = s.adopt(w, token);
                open = lease == null;
                return lease; // null: the session was lost meanwhile, and its grants with it
            }
            if (left.getAsLong() == 0) {
                throw new NotAcquiredException(w.names());
            }
            s.vacate(w.names());
            return null;
        } catch (RefusedException e) {
            open = false;
            if (e.word().equals("DEADLOCK")) {
                avoid.add(s); // another lease of this process is in the circle, but not its holder: the owner is the lease
            } else if (e.word().equals("NOSESSION")) {
                s.lost();
            } else {
                s.vacate(w.names());
                throw e;
            }
            s.vacate(w.names());
            return null;
        } catch (NotAcquiredException | UnavailableException | ClosedException e) {
            open = false;
            s.vacate(w.names());
            throw e;
        } finally {
            if (open) {
                s.settle(w);
            }
        }
    }

    /** Finds a session of the TTL in which the names are free, occupies them, and makes sure that it lives. */
    private Session enter(Session.Wanted w, Set<Session> avoid, long end, long until) throws InterruptedException {
        while (true) {
            Session s = pick(w, avoid, end);
            boolean entered = false;
            try {
                s.open(until);
                entered = true;
                return s;
            } catch (RefusedException e) {
                if (!e.word().equals("NOSESSION")) {
                    throw e;
                }
            } finally {
                if (!entered) {
                    s.vacate(w.names());
                }
            }
        }
    }

    /** Waits until the names are free in a session. Readers and holders of a semaphore take another one when this one has the name. */
    private Session pick(Session.Wanted w, Set<Session> avoid, long end) throws InterruptedException {
        lock.lockInterruptibly();
        try {
            while (true) {
                if (closed) {
                    throw new ClosedException(null);
                }
                List<Session> alive = sessions.computeIfAbsent(w.options().ttlMs, ttl -> new ArrayList<>());
                alive.removeIf(Session::isLost);
                boolean busy = false;
                for (Session s : alive) {
                    if (!avoid.contains(s)) {
                        if (s.occupy(w.names())) {
                            return s;
                        }
                        busy = true;
                    }
                }
                if (!busy || w.options().severalHold()) {
                    Session s = new Session(nodes, threads, clock, label, w.options().ttlMs, lock, freed);
                    s.occupy(w.names());
                    alive.add(s);
                    return s;
                }
                if (clock.now() >= end) {
                    throw new NotAcquiredException(w.names());
                }
                freed.await(Math.min(end - clock.now(), 1000), TimeUnit.MILLISECONDS);
            }
        } finally {
            lock.unlock();
        }
    }

    /**
     * The same for reactive code. The future gives the lease; {@code cancel} gives up the wait, and nothing stays held. A wait occupies a
     * thread of the driver.
     *
     * @param name 1 to 255 bytes
     * @param options TTL, wait and others
     * @return the lease
     */
    public CompletableFuture<Lease> acquireAsync(String name, Options options) {
        options.names(name);
        return new Pending(this, name, options).start(threads);
    }

    /** An acquire in a thread of the driver, which cancel interrupts. */
    private static final class Pending extends CompletableFuture<Lease> {
        private final Fencelock locks;
        private final String name;
        private final Options options;
        private Thread runner;

        Pending(Fencelock locks, String name, Options options) {
            this.locks = locks;
            this.name = name;
            this.options = options;
        }

        Pending start(Threads threads) {
            threads.execute(this::run);
            return this;
        }

        private synchronized void runner(Thread t) {
            runner = t;
        }

        private void run() {
            runner(Thread.currentThread());
            Lease lease = null;
            try {
                lease = isDone() ? null : locks.acquire(name, options);
                runner(null);
                if (lease != null && !complete(lease)) {
                    lease.close(); // it was cancelled
                }
            } catch (InterruptedException | FencelockException | IllegalArgumentException e) {
                runner(null);
                completeExceptionally(e);
            }
        }

        @Override
        public boolean cancel(boolean mayInterruptIfRunning) {
            boolean cancelled = super.cancel(mayInterruptIfRunning);
            synchronized (this) {
                if (cancelled && runner != null) {
                    runner.interrupt();
                }
            }
            return cancelled;
        }
    }

    // --- with, lock, elect, watch ---------------------------------------------------------------------------------------------------

    /**
     * Work under a lock.
     *
     * @param <E> what it throws
     */
    @FunctionalInterface
    public interface Work<E extends Exception> {
        /**
         * Does it.
         *
         * @param lease the lock
         * @throws E whatever it throws
         */
        void run(Lease lease) throws E;
    }

    /**
     * Takes the lock, does the work, and releases the lock. When the lock is lost this thread is interrupted; the work should end then.
     *
     * @param <E> what the work throws
     * @param name 1 to 255 bytes
     * @param options TTL, wait and others
     * @param work is done under the lock
     * @throws E what the work throws
     * @throws InterruptedException when this thread is interrupted while it waits
     */
    public <E extends Exception> void with(String name, Options options, Work<E> work) throws E, InterruptedException {
        try (Lease lease = acquire(name, options).interruptOnLoss()) {
            work.run(lease);
        }
    }

    /**
     * A {@link java.util.concurrent.locks.Lock} for programs that want one.
     *
     * @param name 1 to 255 bytes
     * @param options TTL and others; the wait comes from the call
     * @return a lock, which any thread may unlock
     */
    public FencedLock asLock(String name, Options options) {
        options.names(name);
        return new FencedLock(this, name, options);
    }

    /**
     * The same with a TTL of 10 s.
     *
     * @param name 1 to 255 bytes
     * @return a lock
     */
    public FencedLock asLock(String name) {
        return asLock(name, Options.NONE);
    }

    /**
     * Leader election: runs the work while this process leads, in a thread of its own. When the lock is lost that thread is interrupted;
     * once the work has returned, it stands for election again. When the work returns while it still leads, the election is over.
     *
     * @param name of the lock that the leader holds
     * @param options TTL and value
     * @param work of the leader
     * @return ends the election with {@code close}
     */
    public Election elect(String name, Options options, Work<?> work) {
        options.names(name);
        return new Election(this, name, options.waitFor(null), work);
    }

    /**
     * Tells of the events of all locks whose names the pattern matches, in a thread of its own. The first event is a {@code resync}, and
     * another one comes after each gap: look again then.
     *
     * @param pattern with *, ?, [a-z]
     * @param listener is told; what it throws ends the watch
     * @return ends the watch with {@code close}
     */
    public Watch watch(String pattern, Consumer<Event> listener) {
        if (pattern.isEmpty()) {
            throw new IllegalArgumentException("the pattern is empty: write * for all locks");
        }
        return new Watch(nodes, pattern, listener);
    }

    /**
     * Who holds the lock, the first of several. It takes nothing.
     *
     * @param name of the lock
     * @return empty when it is free
     * @throws InterruptedException when this thread is interrupted
     */
    public Optional<Holder> holder(String name) throws InterruptedException {
        Nodes.Request r = Nodes.Request.now(Nodes.ATTEMPT_FIRST_MS, List.of(List.of("SHOW", name)));
        Object show = nodes.ask(r, clock.now() + PATIENCE_MS).first();
        if (!(Session.field(show, "token") instanceof Long token)) {
            return Optional.empty();
        }
        long age = Session.field(show, "age_ms") instanceof Long ms ? ms : 0;
        return Optional.of(new Holder(token, text(show, "owner"), text(show, "label"), text(show, "value"), Duration.ofMillis(age)));
    }

    private static String text(Object show, String name) {
        return Session.field(show, name) instanceof String s ? s : "";
    }

    /** Ends the sessions, and so the leases, as lost. It waits two seconds for that at most. */
    @Override
    public void close() {
        List<Session> all = new ArrayList<>();
        lock.lock();
        try {
            closed = true;
            sessions.values().forEach(all::addAll);
            sessions.clear();
            freed.signalAll();
        } finally {
            lock.unlock();
        }
        long until = clock.now() + CLOSE_MS;
        boolean interruption = Thread.interrupted();
        for (Session s : all) {
            try {
                s.close(until);
            } catch (FencelockException e) {
                // it expires
            } catch (InterruptedException e) {
                interruption = true;
            }
        }
        if (interruption) {
            Thread.currentThread().interrupt();
        }
        nodes.close();
        threads.close();
    }
}
