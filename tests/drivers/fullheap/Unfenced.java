package io.github.fencelock.sample;

import io.github.fencelock.Fencelock;
import io.github.fencelock.Lease;
import io.github.fencelock.Options;
import io.github.fencelock.spring.FencelockProperties;
import java.time.Duration;
import java.util.OptionalLong;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.context.annotation.Primary;
import org.springframework.context.annotation.Profile;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.stereotype.Service;
import org.springframework.transaction.support.TransactionTemplate;

/** The same payment under the same lock, without tokens: what a lock alone can do. */
@Service
@Primary
@Profile("unfenced")
public class Unfenced extends Accounts {
    private final Fencelock locks;
    private final Options options;
    private final TransactionTemplate transactions;

    public Unfenced(JdbcTemplate sql, Interest interest, @Value("${sample.every}") Duration every, Fencelock locks,
                    FencelockProperties properties, TransactionTemplate transactions) {
        super(sql, interest, every);
        this.locks = locks;
        this.options = Options.NONE.ttl(properties.ttl());
        this.transactions = transactions;
    }

    @Override
    public OptionalLong pay(long id) {
        try (Lease lease = locks.acquire("account/" + id, options)) {
            return transactions.execute(t -> super.pay(id));
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }
}
