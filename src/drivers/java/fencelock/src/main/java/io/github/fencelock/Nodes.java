package io.github.fencelock;

import java.io.IOException;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.LongSupplier;
import java.util.function.Supplier;
import javax.net.ssl.SSLSocketFactory;

/** The servers, and how a request is asked of one after another until it is answered. */
final class Nodes {
    static final long ATTEMPT_FIRST_MS = 500; // for an answer that is due at once, in the first round
    private static final long ATTEMPT_MOST_MS = 8000;
    static final long PAUSE_FIRST_MS = 10;
    static final long PAUSE_MOST_MS = 500;
    private static final long PROBE_EVERY_MS = 2000; // a node that holds an answer back is asked whether it still serves
    private static final int PROBES_MOST = 2; // so many without a leader, one after another, and the wait goes on elsewhere
    private static final int IDLE_WAITERS = 16;

    /**
     * One request, or several that are sent together, that may be carried out twice without harm. Each attempt asks for the words again,
     * since ACQUIRE numbers its attempts. held says for how many milliseconds the server may hold the answer back.
     */
    record Request(Supplier<List<List<String>>> words, LongSupplier held, long attemptMs) {
        static Request now(long attemptMs, List<List<String>> words) {
            return new Request(() -> words, () -> 0, attemptMs);
        }
    }

    /** What a node said; sent is from before the attempt that was answered. */
    record Answer(List<Object> replies, long sent) {
        Object first() {
            return replies.get(0);
        }
    }

    private enum Verdict { ANSWERED, REFUSED, ELSEWHERE, UNCERTAIN, SILENT }

    private final Target target;
    private final SSLSocketFactory tls;
    private final String label;
    private final Threads threads;
    private final BootClock clock;
    private final List<Node> list = new ArrayList<>();
    private final Set<Connection> open = ConcurrentHashMap.newKeySet();
    private volatile boolean closed;
    private volatile int prefer; // the one that answered last

    Nodes(Target target, SSLSocketFactory tls, String label, Threads threads, BootClock clock) {
        this.target = target;
        this.tls = tls;
        this.label = label;
        this.threads = threads;
        this.clock = clock;
        target.addresses().forEach(a -> list.add(new Node(a)));
        prefer = ThreadLocalRandom.current().nextInt(list.size());
    }

    int preferred() {
        return prefer;
    }

    Resp connect(int at) throws IOException {
        return Resp.open(target, target.addresses().get(at % list.size()), tls, label);
    }

    boolean isClosed() {
        return closed;
    }

    void close() {
        closed = true;
        open.forEach(Connection::close);
    }

    /**
     * Sends the request, to one node after another, until one answers it.
     *
     * @throws RefusedException when one refuses it
     * @throws UncertainException when one refuses it or the time is over, and some attempt may have been carried out
     * @throws UnavailableException when the time is over, and surely none was carried out
     */
    Answer ask(Request r, long until) throws InterruptedException {
        int at = prefer;
        int asked = 0;
        long attempt = r.attemptMs();
        long pause = PAUSE_FIRST_MS;
        boolean stayed = false;
        boolean unknown = false;
        Throwable last = null;
        while (clock.now() < until) {
            if (closed) {
                throw new ClosedException(last);
            }
            Verdict v;
            try {
                Answer a = list.get(at).attempt(r, attempt, until);
                Resp.Failure failure = failureOf(a);
                if (failure == null) {
                    prefer = at;
                    return a;
                }
                last = new RefusedException(failure.line());
                v = judge(failure);
            } catch (RefusedException e) { // of the login
                last = e;
                v = Verdict.REFUSED;
            } catch (IOException e) {
                last = e;
                v = e instanceof Connection.NotSent ? Verdict.ELSEWHERE : Verdict.SILENT;
            }
            if (v == Verdict.REFUSED) {
                RefusedException refusal = (RefusedException) last; // it is about this attempt, and not about the one before
                throw unknown && !refusal.isSeen() ? new UncertainException(refusal) : refusal;
            }
            unknown = unknown || v == Verdict.SILENT || v == Verdict.UNCERTAIN;
            if (v == Verdict.UNCERTAIN && !stayed) { // it lost its leader in the middle: it knows the next one first
                stayed = true;
                continue;
            }
            stayed = false;
            at = (at + 1) % list.size();
            if (++asked % list.size() == 0) {
                Thread.sleep(Math.max(0, Math.min(1 + ThreadLocalRandom.current().nextLong(pause), until - clock.now())));
                pause = Math.min(pause * 2, PAUSE_MOST_MS);
                attempt = Math.min(attempt * 2, ATTEMPT_MOST_MS);
            }
        }
        throw unknown ? new UncertainException(last) : new UnavailableException(last);
    }

    private static Resp.Failure failureOf(Answer a) {
        return (Resp.Failure) a.replies().stream().filter(o -> o instanceof Resp.Failure).findFirst().orElse(null);
    }

    /** An error that another node, or this one a little later, may not give. */
    static boolean isPassing(Resp.Failure failure) {
        return judge(failure) != Verdict.REFUSED;
    }

    /** What an error answer means. */
    private static Verdict judge(Resp.Failure failure) {
        return switch (failure.word()) {
            case "NOLEADER", "BUSY" -> Verdict.ELSEWHERE;
            case "UNCERTAIN" -> Verdict.UNCERTAIN;
            default -> Verdict.REFUSED;
        };
    }

    /** One server. It has a connection for all that is answered at once, and one for each answer that is held back. */
    private final class Node {
        private final Target.Address address;
        private final Deque<Connection> idle = new ArrayDeque<>();
        private CompletableFuture<Connection> shared;

        Node(Target.Address address) {
            this.address = address;
        }

        private CompletableFuture<Connection> connect() {
            CompletableFuture<Connection> c = new CompletableFuture<>();
            threads.execute(() -> {
                try {
                    Resp resp = Resp.open(target, address, tls, label);
                    Connection[] made = new Connection[1];
                    made[0] = new Connection(resp, threads, () -> {
                        if (made[0] != null) {
                            open.remove(made[0]);
                        }
                    });
                    open.add(made[0]);
                    if (closed || made[0].isBroken()) {
                        made[0].close();
                    }
                    c.complete(made[0]);
                } catch (RefusedException e) {
                    c.completeExceptionally(e);
                } catch (IOException | RuntimeException | OutOfMemoryError e) {
                    c.completeExceptionally(new Connection.NotSent(new IOException(address + ": " + e, e)));
                }
            });
            return c;
        }

        private synchronized CompletableFuture<Connection> shared() {
            if (shared == null || shared.isCompletedExceptionally() || shared.isDone() && shared.join().isBroken()) {
                shared = connect();
            }
            return shared;
        }

        private synchronized void forget(CompletableFuture<Connection> c) {
            if (shared == c) {
                shared = null;
            }
            discard(c);
        }

        private void discard(CompletableFuture<Connection> c) {
            c.thenAccept(Connection::close);
        }

        private synchronized CompletableFuture<Connection> waiter() {
            for (Connection c = idle.pollLast(); c != null; c = idle.pollLast()) {
                if (!c.isBroken()) {
                    return CompletableFuture.completedFuture(c);
                }
            }
            return connect();
        }

        private synchronized void keep(CompletableFuture<Connection> c) {
            if (idle.size() < IDLE_WAITERS) {
                c.thenAccept(idle::addLast);
            } else {
                discard(c);
            }
        }

        Answer attempt(Request r, long attemptMs, long until) throws InterruptedException, IOException {
            long held = r.held().getAsLong();
            List<List<String>> words = r.words().get();
            long sent = clock.now();
            List<Object> replies = held > 0 ? await(words, held, attemptMs, until) : atOnce(words, attemptMs, until);
            return new Answer(replies, sent);
        }

        private List<Object> atOnce(List<List<String>> words, long attemptMs, long until) throws InterruptedException, IOException {
            CompletableFuture<Connection> c = shared();
            Sending sending = new Sending();
            List<Object> replies = get(sending.on(c, words), Math.min(attemptMs, until - clock.now()));
            if (replies == null) {
                forget(c); // what hangs gets nothing more
                throw sending.gaveUp("no answer in time");
            }
            return replies;
        }

        /**
         * An answer that is held back has a connection of its own. It is closed when the wait is given up, and the node takes back the place
         * in the queue. Meanwhile the node is asked whether it serves: a node that hangs closes nothing.
         */
        private List<Object> await(List<List<String>> words, long held, long attemptMs, long until) throws InterruptedException, IOException {
            CompletableFuture<Connection> c = waiter();
            Sending sending = new Sending();
            CompletableFuture<List<Object>> reply = sending.on(c, words);
            List<Object> replies = null;
            try {
                long end = Math.min(until, clock.now() + held + attemptMs);
                for (int poor = 0; poor < PROBES_MOST && replies == null && clock.now() < end;) {
                    replies = get(reply, Math.min(PROBE_EVERY_MS, end - clock.now()));
                    int n = replies == null && clock.now() < end ? probe(Math.max(attemptMs, 1000), end) : 0;
                    poor = n == 0 ? 0 : poor + n;
                }
            } finally {
                if (replies != null) {
                    keep(c);
                } else {
                    discard(c);
                }
            }
            if (replies == null) {
                throw sending.gaveUp("the node says nothing, or knows no leader");
            }
            return replies;
        }

        /** 0 when the node knows a leader. A node without one may be in an election, so that counts half of a node that is silent. */
        private int probe(long limitMs, long until) throws InterruptedException {
            try {
                return atOnce(List.of(List.of("LEADER")), limitMs, until).get(0) == null ? 1 : 0;
            } catch (IOException | RefusedException e) {
                return PROBES_MOST;
            }
        }
    }

    /** A request that is sent when there is a connection, unless it was given up before: then surely nothing was sent. */
    private static final class Sending {
        private final AtomicBoolean decided = new AtomicBoolean();

        CompletableFuture<List<Object>> on(CompletableFuture<Connection> c, List<List<String>> words) {
            return c.thenCompose(x -> decided.compareAndSet(false, true) ? x.send(words)
                : CompletableFuture.failedFuture(new Connection.NotSent(null)));
        }

        IOException gaveUp(String why) {
            IOException e = new IOException(why);
            return decided.compareAndSet(false, true) ? new Connection.NotSent(e) : e;
        }
    }

    /** The answers; null when there are none in time. */
    private static List<Object> get(CompletableFuture<List<Object>> reply, long ms) throws InterruptedException, IOException {
        try {
            return reply.get(Math.max(ms, 1), TimeUnit.MILLISECONDS);
        } catch (TimeoutException e) {
            return null;
        } catch (ExecutionException e) {
            Throwable why = e.getCause() instanceof CompletionException c ? c.getCause() : e.getCause();
            if (why instanceof RefusedException refused) {
                throw refused;
            }
            throw why instanceof IOException io ? io : new IOException(why);
        }
    }
}
