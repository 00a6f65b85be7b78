package io.github.fencelock.sample;

import io.github.fencelock.Fencelock;
import io.github.fencelock.Lease;
import io.github.fencelock.Options;
import java.time.Duration;
import java.util.OptionalLong;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.context.annotation.Primary;
import org.springframework.context.annotation.Profile;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.stereotype.Service;
import org.springframework.transaction.annotation.Propagation;
import org.springframework.transaction.annotation.Transactional;
import org.springframework.transaction.support.TransactionTemplate;

/** The same payment under the same lock, without tokens: what a lock alone can do. It runs without the starter, so @Fenced means nothing. */
@Service
@Primary
@Profile("unfenced")
public class Unfenced extends Accounts {
    private final Fencelock locks;
    private final Options options;
    private final TransactionTemplate transactions;

    public Unfenced(JdbcTemplate sql, Interest interest, @Value("${sample.every}") Duration every, @Value("${fencelock.url}") String url,
                    @Value("${fencelock.ttl}") Duration ttl, TransactionTemplate transactions) {
        super(sql, interest, every);
        this.locks = Fencelock.connect(url);
        this.options = Options.NONE.ttl(ttl);
        this.transactions = transactions;
    }

    @Override
    @Transactional(propagation = Propagation.NOT_SUPPORTED)
    public OptionalLong pay(long id) {
        try (Lease lease = locks.acquire("account/" + id, options)) {
            return transactions.execute(t -> super.pay(id));
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }
}
