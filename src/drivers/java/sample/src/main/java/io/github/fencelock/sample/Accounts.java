package io.github.fencelock.sample;

import io.github.fencelock.spring.Fenced;
import java.time.Duration;
import java.util.List;
import java.util.OptionalLong;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.stereotype.Service;
import org.springframework.transaction.annotation.Transactional;

/** Reads a balance, and writes a new one: what two instances must not do at a time. */
@Service
public class Accounts {
    private final JdbcTemplate sql;
    private final Interest interest;
    private final Duration every;

    public Accounts(JdbcTemplate sql, Interest interest, @Value("${sample.every}") Duration every) {
        this.sql = sql;
        this.interest = interest;
        this.every = every;
    }

    /** Pays if the last payment is long enough ago, by the clock of the database. Gives the new balance, or nothing. */
    @Fenced(lock = "'account/' + #id")
    @Transactional
    public OptionalLong pay(long id) {
        String lock = "account/" + id;
        List<Long> due = sql.queryForList("SELECT balance FROM account WHERE lock = ? AND paid <= now() - make_interval(secs => ?)",
            Long.class, lock, every.toMillis() / 1000.0);
        if (due.isEmpty()) {
            return OptionalLong.empty();
        }
        long balance = due.get(0) + interest.of(due.get(0));
        sql.update("UPDATE account SET balance = ?, paid = now() WHERE lock = ?", balance, lock);
        return OptionalLong.of(balance);
    }
}
