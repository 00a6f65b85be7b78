package io.github.fencelock;

import java.util.List;

/** Other clients held the lock for as long as the call was to wait. */
public final class NotAcquiredException extends FencelockException {
    private static final long serialVersionUID = 1;

    NotAcquiredException(List<String> names) {
        super("another client holds the lock " + String.join(" or ", names), null);
    }
}
