package io.github.fencelock.spring;

import io.github.fencelock.Lease;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.List;
import java.util.Optional;

/** The leases of the {@link Fenced} methods that run in this thread. */
public final class Leases {
    private static final ThreadLocal<Deque<Lease>> OF_THIS_THREAD = ThreadLocal.withInitial(ArrayDeque::new);

    private Leases() { }

    /**
     * The lease of the innermost {@link Fenced} method that runs in this thread, for its token, {@code check()} and {@code onLost}.
     *
     * @return empty in a thread that runs none
     */
    public static Optional<Lease> current() {
        return Optional.ofNullable(OF_THIS_THREAD.get().peekLast());
    }

    /** From the outermost method to the innermost one. */
    static List<Lease> all() {
        return List.copyOf(OF_THIS_THREAD.get());
    }

    static void begin(Lease lease) {
        OF_THIS_THREAD.get().addLast(lease);
    }

    static void end() {
        OF_THIS_THREAD.get().removeLast();
    }
}
