package io.github.fencelock;

import java.util.concurrent.Executor;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/**
 * The threads of a client. All are daemons and platform threads: virtual ones would share their carriers with the program, and a program
 * that blocks those would lose its locks.
 */
final class Threads implements Executor {
    private static final long IDLE_S = 2;

    private final ThreadPoolExecutor pool = new ThreadPoolExecutor(0, Integer.MAX_VALUE, IDLE_S, TimeUnit.SECONDS, new SynchronousQueue<>(),
        r -> thread("fencelock-worker", r));

    private static Thread thread(String name, Runnable run) {
        Thread t = new Thread(run, name);
        t.setDaemon(true);
        return t;
    }

    Thread start(String name, Runnable run) {
        Thread t = thread(name, run);
        t.start();
        return t;
    }

    /** In a thread of the pool. */
    @Override
    public void execute(Runnable run) throws RejectedExecutionException {
        pool.execute(run);
    }

    /** In a thread of the pool, or in this one if there can be none: no memory is left, or the client is closed. */
    void executeSurely(Runnable run) {
        try {
            pool.execute(run);
        } catch (RejectedExecutionException | OutOfMemoryError e) {
            run.run();
        }
    }

    void close() {
        pool.shutdown();
    }
}
