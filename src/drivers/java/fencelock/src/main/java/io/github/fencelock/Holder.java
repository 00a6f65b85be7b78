package io.github.fencelock;

import java.time.Duration;

/**
 * Who holds a lock, as the service knows it.
 *
 * @param token of the grant
 * @param owner the session
 * @param label names the holder's process
 * @param value what the holder gave to {@link Options#value}
 * @param age since the grant
 */
public record Holder(long token, String owner, String label, String value, Duration age) { }
