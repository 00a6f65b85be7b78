package io.github.fencelock.sample;

import org.springframework.stereotype.Component;

/** How much is paid. In a larger program this asks others, and takes as long as it takes. */
@Component
public class Interest {
    public long of(long balance) {
        return 1;
    }
}
