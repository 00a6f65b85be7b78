package io.github.fencelock;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.locks.ReentrantLock;

/** Requests of many threads on one connection, whose answers come in their order. A thread of its own reads them. */
final class Connection {
    /** Surely nothing of the request was sent. */
    static final class NotSent extends IOException {
        private static final long serialVersionUID = 1;

        NotSent(Throwable cause) {
            super(cause == null ? "the connection is closed" : String.valueOf(cause.getMessage()), cause);
        }
    }

    /** Requests that were sent together, and their answers. */
    private static final class Exchange extends CompletableFuture<List<Object>> {
        private final int n;
        private final List<Object> replies = new ArrayList<>();

        Exchange(int n) {
            this.n = n;
        }
    }

    private final Resp resp;
    private final Runnable closed;
    private final ReentrantLock writing = new ReentrantLock();
    private final Queue<Exchange> pending = new ConcurrentLinkedQueue<>();
    private volatile boolean broken;

    /** @param closed runs once, when the connection is no more */
    Connection(Resp resp, Threads threads, Runnable closed) {
        this.resp = resp;
        this.closed = closed;
        threads.start("fencelock-reader", this::read);
    }

    CompletableFuture<List<Object>> send(List<List<String>> requests) {
        Exchange exchange = new Exchange(requests.size());
        writing.lock();
        try {
            if (broken) {
                exchange.completeExceptionally(new NotSent(null));
                return exchange;
            }
            pending.add(exchange);
            resp.write(requests);
        } catch (IOException e) {
            fail(e);
        } finally {
            writing.unlock();
        }
        if (broken) { // it may have been added after all others were told
            exchange.completeExceptionally(new IOException("the connection broke"));
        }
        return exchange;
    }

    private void read() {
        Throwable why = null;
        try {
            while (!broken) {
                Object reply = resp.read();
                Exchange exchange = pending.peek();
                if (exchange == null) {
                    throw new IOException("the node answers what nobody asked");
                }
                exchange.replies.add(reply);
                if (exchange.replies.size() == exchange.n) {
                    pending.poll();
                    exchange.complete(exchange.replies);
                }
            }
        } catch (IOException | RuntimeException | OutOfMemoryError e) {
            why = e;
        } finally {
            fail(why);
        }
    }

    private void fail(Throwable why) {
        broken = true;
        resp.close();
        closed.run();
        for (Exchange e = pending.poll(); e != null; e = pending.poll()) {
            e.completeExceptionally(new IOException("the connection broke", why));
        }
    }

    boolean isBroken() {
        return broken;
    }

    void close() {
        fail(null);
    }
}
