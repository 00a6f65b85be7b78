package io.github.fencelock;

/** No node served for as long as the request could wait. It was not carried out. */
public final class UnavailableException extends FencelockException {
    private static final long serialVersionUID = 1;

    UnavailableException(Throwable cause) {
        super("no node serves" + because(cause), cause);
    }
}
