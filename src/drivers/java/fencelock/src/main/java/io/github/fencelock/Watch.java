package io.github.fencelock;

import java.io.IOException;
import java.net.SocketTimeoutException;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.function.Consumer;

/** Tells of events until it is closed: see {@link Fencelock#watch}. */
public final class Watch implements AutoCloseable {
    private static final int QUIET_MS = 5000; // after so long without an event the node is asked whether it is there
    private static final String CHANNELS = "lock:";

    private final Nodes nodes;
    private final String pattern;
    private final Consumer<Event> listener;
    private final Thread thread;
    private final CompletableFuture<Void> over = new CompletableFuture<>();
    private volatile boolean closed;
    private volatile Resp resp;

    Watch(Nodes nodes, String pattern, Consumer<Event> listener) {
        this.nodes = nodes;
        this.pattern = pattern;
        this.listener = listener;
        thread = new Thread(this::run, "fencelock-watch " + pattern);
        thread.setDaemon(true);
        thread.start();
    }

    private boolean ended() {
        return closed || nodes.isClosed();
    }

    private void run() {
        try {
            long pause = Nodes.PAUSE_FIRST_MS;
            for (int at = nodes.preferred(); !ended(); at++) {
                pause = subscribed(at) ? Nodes.PAUSE_FIRST_MS : Math.min(pause * 2, Nodes.PAUSE_MOST_MS);
                if (!ended()) {
                    Thread.sleep(pause);
                }
            }
            over.complete(null);
        } catch (InterruptedException e) {
            over.complete(null);
        } catch (Throwable e) {
            over.completeExceptionally(e);
        }
    }

    /** Whether there was a subscription, when it has ended. */
    private boolean subscribed(int at) {
        boolean had = false;
        try (Resp r = nodes.connect(at)) {
            resp = r;
            r.timeout(QUIET_MS);
            r.write(List.of(List.of("PSUBSCRIBE", CHANNELS + pattern)));
            for (boolean asked = false; !ended();) {
                Object said;
                try {
                    said = r.read();
                    asked = false;
                } catch (SocketTimeoutException e) {
                    if (asked) {
                        return had;
                    }
                    asked = true;
                    r.write(List.of(List.of("PING")));
                    continue;
                }
                if (said instanceof Resp.Failure f) {
                    if (!Nodes.isPassing(f)) {
                        throw new RefusedException(f.line());
                    }
                    return had;
                }
                had |= tell((List<?>) said);
            }
        } catch (IOException e) {
            // the next node
        }
        return had;
    }

    private boolean tell(List<?> said) {
        if (said.size() == 3 && "psubscribe".equals(said.get(0))) {
            hand(Event.resync());
            return true;
        }
        if (said.size() == 4 && "pmessage".equals(said.get(0))) {
            hand(Event.of((String) said.get(2), (String) said.get(3)));
        }
        return false;
    }

    private void hand(Event event) {
        if (!closed) {
            listener.accept(event);
        }
    }

    /** @return completes when the watch is over; with the error of the listener, or the refusal of the service */
    public CompletionStage<Void> over() {
        return over.minimalCompletionStage();
    }

    /** Ends it. The listener may be in its last event meanwhile. */
    @Override
    public void close() {
        closed = true;
        Resp r = resp;
        if (r != null) {
            r.close();
        }
        thread.interrupt();
    }
}
