package io.github.fencelock;

/**
 * Something that happened to a lock.
 *
 * @param lock the name; empty for a gap that concerns every lock of the pattern
 * @param kind granted, queued, released, expired, broken, left; resync: events were missed, so look again
 * @param token of the grant; 0 when there is none
 * @param owner the session
 * @param clockMs the clock of the cluster
 */
public record Event(String lock, String kind, long token, String owner, long clockMs) {
    static Event resync() {
        return new Event("", "resync", 0, "", 0);
    }

    static Event of(String channel, String payload) {
        String lock = channel.startsWith("lock:") ? channel.substring(5) : "";
        String kind = "";
        String owner = "";
        long token = 0;
        long clock = 0;
        for (String word : payload.split(" ")) {
            int eq = word.indexOf('=');
            String value = word.substring(eq + 1);
            switch (eq < 0 ? "" : word.substring(0, eq)) {
                case "event" -> kind = value;
                case "token" -> token = Long.parseLong(value);
                case "owner" -> owner = unescaped(value);
                case "clock" -> clock = Long.parseLong(value);
                default -> { }
            }
        }
        return new Event(lock, kind, token, owner, clock);
    }

    private static String unescaped(String value) {
        StringBuilder b = new StringBuilder();
        for (int i = 0; i < value.length(); i++) {
            if (value.charAt(i) == '%' && i + 2 < value.length()) {
                b.append((char) Integer.parseInt(value.substring(i + 1, i + 3), 16));
                i += 2;
            } else {
                b.append(value.charAt(i));
            }
        }
        return b.toString();
    }
}
