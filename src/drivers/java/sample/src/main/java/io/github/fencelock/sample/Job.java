package io.github.fencelock.sample;

import io.github.fencelock.FencelockException;
import io.github.fencelock.LostException;
import io.github.fencelock.NotAcquiredException;
import io.github.fencelock.StaleException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.springframework.scheduling.annotation.Scheduled;
import org.springframework.stereotype.Component;

/** Looks every few seconds whether a payment is due. Whatever goes wrong, the next look is the next attempt, with a new lease. */
@Component
public class Job {
    private static final Logger LOG = LoggerFactory.getLogger(Job.class);

    private final Accounts accounts;

    public Job(Accounts accounts) {
        this.accounts = accounts;
    }

    @Scheduled(fixedDelayString = "${sample.look}")
    public void look() {
        try {
            accounts.pay(42).ifPresent(balance -> LOG.info("paid: the balance is {}", balance));
        } catch (NotAcquiredException e) {
            LOG.debug("another instance is at it");
        } catch (LostException e) {
            LOG.warn("lost: the lease ended before the commit, so nothing was written");
        } catch (StaleException e) {
            LOG.warn("stale: {}; nothing was written", e.getMessage());
        } catch (FencelockException e) {
            LOG.warn("no lock: {}", e.getMessage());
        }
    }
}
