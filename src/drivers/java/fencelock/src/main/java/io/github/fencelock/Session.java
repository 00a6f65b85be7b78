package io.github.fencelock;

import java.nio.charset.StandardCharsets;
import java.security.SecureRandom;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.LongSupplier;
import java.util.function.Supplier;

/**
 * Many leases of one TTL under one lease at the service: one renewal for all of them. A lock can be held once by a session, so a lease
 * occupies the names of its locks there. Everything but the final fields is guarded by the lock of the client.
 */
final class Session {
    private static final System.Logger LOG = System.getLogger("io.github.fencelock");
    private static final SecureRandom RANDOM = new SecureRandom();
    private static final long LOOK_MOST_MS = 1000; // Java's timers may stand still in a suspension, so nothing sleeps for longer
    private static final int CHECKS_TOGETHER = 64;
    private static final long SETTLE_AGAIN_MS = 1000; // after a refusal, for instance by a node that takes no more connections

    /** What an acquire asks for. */
    record Wanted(List<String> names, Options options) { }

    private final Nodes nodes;
    private final Threads threads;
    private final BootClock clock;
    private final String label;
    private final String owner;
    private final long ttl;
    private final ReentrantLock lock;
    private final Condition freed; // names are free again, in any session
    private final Condition wake;
    private final ReentrantLock gate = new ReentrantLock(); // its holder opens the session

    private final Set<Lease> leases = new HashSet<>();
    private final Set<String> occupied = new HashSet<>(); // by leases, by acquires under way, and by those that are being settled
    private final Map<String, Long> attempts = new HashMap<>(); // the last number that was sent, of requests that were ever sent twice
    private LeaseState state; // null: not open yet
    private boolean keeping;

    Session(Nodes nodes, Threads threads, BootClock clock, String label, long ttl, ReentrantLock lock, Condition freed) {
        this.nodes = nodes;
        this.threads = threads;
        this.clock = clock;
        this.label = label;
        this.ttl = ttl;
        this.lock = lock;
        this.freed = freed;
        wake = lock.newCondition();
        byte[] id = new byte[16];
        RANDOM.nextBytes(id);
        owner = HexFormat.of().formatHex(id);
    }

    // --- names ----------------------------------------------------------------------------------------------------------------------

    /** Takes the names; false when one of them is taken or the session is lost. Under the lock. */
    boolean occupy(List<String> names) {
        if (isLost() || names.stream().anyMatch(occupied::contains)) {
            return false;
        }
        occupied.addAll(names);
        return true;
    }

    void vacate(List<String> names) {
        lock.lock();
        try {
            names.forEach(occupied::remove);
            freed.signalAll();
            wake.signalAll();
        } finally {
            lock.unlock();
        }
    }

    /** Under the lock. */
    boolean isLost() {
        return state != null && state.at(clock.now()) == State.LOST;
    }

    // --- the life of the session ----------------------------------------------------------------------------------------------------

    private static RefusedException over() {
        return new RefusedException("NOSESSION the session is over");
    }

    /** Makes sure that the session lives for at least half of its TTL, and that it is renewed from then on. */
    void open(long until) throws InterruptedException {
        if (!gate.tryLock(Math.max(0, Math.min(until - clock.now(), Integer.MAX_VALUE)), TimeUnit.MILLISECONDS)) {
            throw new UnavailableException(null);
        }
        try {
            State was = look();
            if (was == State.LOST) {
                throw over();
            }
            if (was != State.SAFE) {
                Nodes.Answer a = nodes.ask(request(List.of("SESSION", "OPEN", owner, "TTL", Long.toString(ttl), "LABEL", label)), until);
                opened(a.sent());
            }
        } finally {
            gate.unlock();
        }
        keep();
    }

    /** The state; null when the session is not open. */
    private State look() {
        lock.lock();
        try {
            return state == null ? null : state.at(clock.now());
        } finally {
            lock.unlock();
        }
    }

    /** Notes the answer to an open that was sent at sent. Its leases may have been lost meanwhile: a lost one never comes back. */
    void opened(long sent) {
        lock.lock();
        try {
            if (state == null) {
                state = new LeaseState(sent, ttl);
            } else if (isLost()) {
                throw over();
            } else {
                state.renewed(clock.now(), sent);
            }
        } finally {
            lock.unlock();
        }
    }

    /** One that is answered at once and may be sent again as it is. */
    private Nodes.Request request(List<String> words) {
        return Nodes.Request.now(attemptMs(), List.of(words));
    }

    private long attemptMs() {
        return Math.min(Math.max(ttl / 10, 50), Nodes.ATTEMPT_FIRST_MS);
    }

    private void keep() {
        lock.lock();
        try {
            if (!keeping) {
                keeping = true;
                threads.start("fencelock-keeper", this::run);
            }
        } finally {
            lock.unlock();
        }
    }

    /**
     * Renews while names are occupied, and tells every lease of the loss. An idle session is left to expire: a lock that is taken soon
     * afterwards finds it alive, and a process that takes no more costs nothing.
     */
    private void run() {
        List<Lease> lost = null;
        while (lost == null) {
            try {
                lost = turn();
            } catch (OutOfMemoryError e) {
                LockSupport.parkNanos(10_000_000); // the heap is full: what is due stays due
            }
        }
        for (Lease l : lost) {
            l.end(true);
        }
    }

    /** One look at what is due, and a wait for the next. Returns the leases to tell of the loss when the keeping is over; else null. */
    private List<Lease> turn() {
        lock.lock();
        try {
            long now = clock.now();
            if (state.at(now) == State.LOST || occupied.isEmpty() && !state.isRenewing()) {
                List<Lease> lost = lose();
                keeping = false;
                return lost;
            }
            if (state.wantsRenewal(now)) {
                state.renewalBegan();
                boolean began = false;
                try {
                    threads.execute(this::renew);
                    began = true;
                } finally {
                    if (!began) {
                        state.renewalEnded(now, LeaseState.Outcome.UNKNOWN, now);
                    }
                }
            }
            wake.await(Math.min(Math.max(state.next() - now, 1), LOOK_MOST_MS), TimeUnit.MILLISECONDS);
            return null;
        } catch (InterruptedException e) {
            return null; // nobody interrupts this thread
        } finally {
            lock.unlock();
        }
    }

    /** Empties the session if it is lost. Its names are free: nothing that it held or awaited is left once its lease is over. */
    private List<Lease> lose() {
        if (state.at(clock.now()) != State.LOST) {
            return List.of();
        }
        List<Lease> lost = List.copyOf(leases);
        leases.clear();
        occupied.clear();
        freed.signalAll();
        return lost;
    }

    /** Renews, and looks whether the service still has all of the locks: an operator may have broken one. */
    private void renew() {
        LeaseState.Outcome outcome = LeaseState.Outcome.UNKNOWN;
        long sent = 0;
        try {
            long until;
            int held;
            lock.lock();
            try {
                until = state.until();
                held = leases.stream().mapToInt(l -> l.names().size()).sum();
            } finally {
                lock.unlock();
            }
            List<List<String>> words = List.of(List.of("SESSION", "RENEW", owner), List.of("SESSION", "SHOW", owner));
            Nodes.Answer a = nodes.ask(Nodes.Request.now(attemptMs(), words), until);
            sent = a.sent();
            outcome = a.first().equals(0L) ? LeaseState.Outcome.GONE : LeaseState.Outcome.RENEWED;
            if (outcome == LeaseState.Outcome.RENEWED && field(a.replies().get(1), "locks") instanceof Long n && n < held) {
                threads.execute(this::findBroken);
            }
        } catch (FencelockException | InterruptedException e) {
            LOG.log(System.Logger.Level.WARNING, "fencelock: a renewal failed: {0}", e.getMessage());
        } finally {
            lock.lock();
            try {
                state.renewalEnded(clock.now(), outcome, sent);
                wake.signalAll();
            } finally {
                lock.unlock();
            }
        }
    }

    /** Asks about each lease, and ends those that the service does not know. */
    private void findBroken() {
        List<Lease> all = locked(() -> List.copyOf(leases));
        for (int from = 0; from < all.size(); from += CHECKS_TOGETHER) {
            List<Lease> part = all.subList(from, Math.min(from + CHECKS_TOGETHER, all.size()));
            List<List<String>> words = new ArrayList<>();
            part.forEach(l -> words.add(List.of("CHECK", l.name(), Long.toString(l.token()))));
            List<Object> replies;
            try {
                replies = nodes.ask(Nodes.Request.now(attemptMs(), words), clock.now() + ttl).replies();
            } catch (FencelockException | InterruptedException e) {
                return; // the next renewal looks again
            }
            for (int i = 0; i < part.size(); i++) {
                if (replies.get(i).equals(0L) && remove(part.get(i))) {
                    part.get(i).end(true);
                    vacate(part.get(i).names());
                }
            }
        }
    }

    /** Whether the lease was one of this session, which it is not any more. */
    private boolean remove(Lease l) {
        return locked(() -> leases.remove(l));
    }

    private <T> T locked(Supplier<T> get) {
        lock.lock();
        try {
            return get.get();
        } finally {
            lock.unlock();
        }
    }

    /** Ends the session, and its leases as lost; also one that is being opened, whose answer it awaits. Whoever opens it later finds it over. */
    void close(long until) throws InterruptedException {
        boolean lived = endLeases();
        if (!gate.tryLock(Math.max(0, until - clock.now()), TimeUnit.MILLISECONDS)) {
            throw new UncertainException(null);
        }
        try {
            lived |= endLeases();
            lost();
            if (lived) {
                nodes.ask(request(List.of("SESSION", "CLOSE", owner)), until);
            }
        } finally {
            gate.unlock();
        }
    }

    /** Makes the session lost; whether it lived. */
    private boolean endLeases() {
        List<Lease> ended = locked(() -> {
            if (state == null || isLost()) {
                return null;
            }
            lost();
            return lose();
        });
        if (ended != null) {
            ended.forEach(l -> l.end(true));
        }
        return ended != null;
    }

    /** The service does not know the session any more, or will never know it. */
    void lost() {
        locked(() -> {
            state = state == null ? new LeaseState(0, ttl) : state;
            state.lose();
            wake.signalAll();
            return null;
        });
    }

    // --- leases ---------------------------------------------------------------------------------------------------------------------

    /** The smallest of the names as bytes: by that the service counts attempts. */
    static String keyOf(List<String> names) {
        return Collections.min(names, Comparator.comparing(n -> n.getBytes(StandardCharsets.UTF_8), Arrays::compareUnsigned));
    }

    /**
     * Asks the service for the lock, in this session. 0: others have it. Every attempt after the first has a number above all before it,
     * so that a late one takes nothing.
     */
    long take(Wanted w, LongSupplier wait, long until) throws InterruptedException {
        String key = keyOf(w.names());
        long[] number = {locked(() -> attempts.getOrDefault(key, 0L))};
        boolean again = number[0] > 0;
        Nodes.Request r = new Nodes.Request(() -> {
            number[0]++;
            if (again || number[0] > 1) {
                number[0] = Math.max(number[0], 2);
                locked(() -> attempts.put(key, number[0]));
            }
            return List.of(w.options().words(w.names(), owner, number[0], wait.getAsLong()));
        }, wait, attemptMs());
        return nodes.ask(r, until).first() instanceof Long token ? token : 0;
    }

    /** Makes a lease of a grant; null when the session has been lost. */
    Lease adopt(Wanted w, long token) {
        return locked(() -> {
            if (isLost()) {
                return null;
            }
            Lease l = new Lease(this, threads, w, token);
            leases.add(l);
            return l;
        });
    }

    /**
     * Makes sure that an acquire or a release without success holds nothing: it asks once more, as a later attempt that does not wait, and
     * gives back the grant. It ends when it is answered, or with the session. Until then the names stay occupied.
     */
    void settle(Wanted w) {
        threads.executeSurely(() -> {
            boolean settled = false;
            while (!settled && locked(() -> !isLost())) {
                settled = settleOnce(w);
                if (!settled) {
                    LockSupport.parkNanos(SETTLE_AGAIN_MS * 1_000_000);
                }
            }
            if (settled) {
                vacate(w.names());
            }
        });
    }

    private boolean settleOnce(Wanted w) {
        try {
            long until = locked(() -> state.until()) + 1;
            long token = take(w, () -> 1, until);
            if (token != 0) {
                nodes.ask(request(List.of("RELEASE", w.names().get(0), Long.toString(token))), until);
            }
            return true;
        } catch (ClosedException e) {
            return true;
        } catch (RefusedException e) {
            return e.isSeen();
        } catch (FencelockException | InterruptedException e) {
            return false;
        }
    }

    /** Gives the lock back; false when the service had it no more. */
    boolean release(Lease l, Wanted w, long patienceMs) throws InterruptedException {
        if (!remove(l)) {
            return false;
        }
        boolean answered = false;
        try {
            Nodes.Answer a = nodes.ask(request(List.of("RELEASE", l.name(), Long.toString(l.token()))), clock.now() + patienceMs);
            answered = true;
            return !a.first().equals(0L);
        } finally {
            if (answered) {
                vacate(w.names());
            } else {
                settle(w); // also when it was not sent, or refused: the lock is held
            }
        }
    }

    State state() {
        return locked(() -> state.at(clock.now()));
    }

    long remaining() {
        return locked(() -> {
            long now = clock.now();
            state.at(now);
            return state.remaining(now);
        });
    }

    /** Lets the keeper look at once. */
    void poke() {
        locked(() -> {
            wake.signalAll();
            return null;
        });
    }

    /** One value of an answer that has names and values in turn. */
    static Object field(Object show, String name) {
        if (show instanceof List<?> all) {
            for (int i = 0; i + 1 < all.size(); i += 2) {
                if (name.equals(all.get(i))) {
                    return all.get(i + 1);
                }
            }
        }
        return null;
    }
}
