package io.github.fencelock;

import java.util.Set;

/** The service refuses it: surely not done, and to send it again does not help. */
public final class RefusedException extends FencelockException {
    private static final long serialVersionUID = 1;
    /** The first word of the answer. */
    private final String word;

    RefusedException(String line) {
        super(line, null);
        word = line.split(" ", 2)[0];
    }

    /** @return the first word of the answer: LIMIT, NOPERM, WRONGPASS, MISMATCH, ... */
    public String word() {
        return word;
    }

    /**
     * The cluster has decided about this very attempt, so that none before it has an effect any more. Other refusals may come from a node by
     * itself.
     */
    boolean isSeen() {
        return Set.of("NOSESSION", "DEADLOCK", "MISMATCH").contains(word);
    }
}
