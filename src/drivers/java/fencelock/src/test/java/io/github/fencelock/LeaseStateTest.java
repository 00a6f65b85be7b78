package io.github.fencelock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

class LeaseStateTest {
    private static final Path VECTORS = Path.of(System.getProperty("fencelock.vectors", "../../../../tests/vectors/lease/lease.json"));

    private final LeaseState lease = new LeaseState(1000, 10000); // believed in until 1000 + 10000 - 102

    private void at(long now, State state, long next) {
        assertEquals(state, lease.at(now));
        assertEquals(next, lease.next());
    }

    @Test
    void renewalsAndDeadlines() {
        at(4332, State.SAFE, 4333);
        assertFalse(lease.wantsRenewal(4332));
        assertTrue(lease.wantsRenewal(4333), "a renewal is due at a third of the TTL");
        lease.renewalBegan();
        at(6000, State.JEOPARDY, 10898);
        lease.renewalEnded(6100, LeaseState.Outcome.RENEWED, 4333);
        at(6100, State.SAFE, 7666);
        lease.renewalBegan();
        lease.renewalEnded(7700, LeaseState.Outcome.UNKNOWN, 7666);
        at(7700, State.JEOPARDY, 8201); // again after a twentieth of the TTL and a millisecond
        lease.renewalBegan();
        lease.renewalEnded(8300, LeaseState.Outcome.RENEWED, 4000); // an answer to an older request gains nothing
        at(8300, State.SAFE, 8201);
        assertEquals(4333 + 10000 - 102 - 8300, lease.remaining(8300));
        at(14231, State.LOST, LeaseState.NEVER);
        lease.renewalBegan();
        lease.renewalEnded(14232, LeaseState.Outcome.RENEWED, 14000);
        at(14232, State.LOST, LeaseState.NEVER); // a lost lease stays lost
    }

    /** The C library's vectors of the lease, but for what this driver has not: a reserve, and the longest hold. */
    @Test
    void vectors() throws IOException {
        assumeTrue(Files.exists(VECTORS), "the vectors are not beside the driver");
        int ran = 0;
        for (Object c : (List<?>) new Json(Files.readString(VECTORS)).value()) {
            Map<?, ?> one = (Map<?, ?>) c;
            List<?> events = (List<?>) one.get("events");
            Map<?, ?> granted = (Map<?, ?>) events.get(0);
            if (number(granted, "reserve_ms") == 0 && number(granted, "max_hold_ms") == 0) {
                run((String) one.get("name"), events);
                ran++;
            }
        }
        assertTrue(ran > 5, ran + " cases");
    }

    private static long number(Map<?, ?> m, String key) {
        return m.get(key) instanceof Long n ? n : 0;
    }

    private static void run(String name, List<?> events) {
        LeaseState l = null;
        for (Object event : events) {
            Map<?, ?> e = (Map<?, ?>) event;
            long now = number(e, "at_ms");
            switch ((String) e.get("event")) {
                case "granted" -> l = new LeaseState(number(e, "sent_ms"), number(e, "ttl_ms"));
                case "renewal_sent" -> l.renewalBegan();
                case "renewal_answered" -> l.renewalEnded(now, switch ((String) e.get("status")) {
                    case "OK" -> LeaseState.Outcome.RENEWED;
                    case "ENOTHELD", "ENOSESSION" -> LeaseState.Outcome.GONE;
                    default -> LeaseState.Outcome.UNKNOWN;
                }, number(e, "sent_ms"));
                case "given_back" -> l.lose();
                default -> { }
            }
            Map<?, ?> then = (Map<?, ?>) e.get("then");
            String at = name + ", " + e.get("event") + " at " + now;
            State state = l.at(now);
            assertEquals(then.get("state"), state.toString().toLowerCase(), at);
            assertEquals(number(then, "remaining_ms"), l.remaining(now), at);
            assertEquals("renew".equals(then.get("request")), l.wantsRenewal(now), at);
            if (state != State.LOST && then.get("next_ms") != null) {
                assertEquals(then.get("next_ms"), l.next(), at);
            }
        }
    }
}
