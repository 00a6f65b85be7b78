package io.github.fencelock.sample;

import java.lang.management.GarbageCollectorMXBean;
import java.lang.management.ManagementFactory;
import java.lang.management.MemoryPoolMXBean;
import org.springframework.context.annotation.Primary;
import org.springframework.stereotype.Component;

/** Fills the heap in the middle of every third payment, until the JVM has stood still in a full collection that freed next to nothing. */
@Component
@Primary
public class FullHeap extends Interest {
    private static final class Node {
        private final Node next;

        Node(Node next) {
            this.next = next;
        }
    }

    private final GarbageCollectorMXBean full = ManagementFactory.getGarbageCollectorMXBeans().stream()
        .filter(c -> c.getName().equals("MarkSweepCompact")).findFirst().orElseThrow();
    private final MemoryPoolMXBean old = ManagementFactory.getMemoryPoolMXBeans().stream()
        .filter(p -> p.getName().equals("Tenured Gen")).findFirst().orElseThrow();
    private Node kept;
    private int payments;

    @Override
    public long of(long balance) {
        if (++payments % 3 == 0) {
            fill();
        }
        return super.of(balance);
    }

    private void fill() {
        long seen = full.getCollectionCount();
        while (full.getCollectionCount() == seen || old.getCollectionUsage().getUsed() < old.getCollectionUsage().getMax() / 10 * 8) {
            for (int i = 0; i < 1000; i++) {
                kept = new Node(kept);
            }
        }
        kept = null;
    }
}
