package io.github.fencelock.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.github.fencelock.Fencelock;
import io.github.fencelock.FencelockException;
import io.github.fencelock.Lease;
import io.github.fencelock.LostException;
import io.github.fencelock.NotAcquiredException;
import io.github.fencelock.Options;
import io.github.fencelock.StaleException;
import io.github.fencelock.jdbc.Fence;
import io.github.fencelock.test.FencelockServer;
import jakarta.persistence.Entity;
import jakarta.persistence.EntityManager;
import jakarta.persistence.Id;
import jakarta.persistence.PersistenceException;
import jakarta.persistence.Table;
import java.io.InputStream;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.sql.SQLException;
import java.time.Duration;
import java.util.Optional;
import javax.sql.DataSource;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.ImportAutoConfiguration;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.boot.autoconfigure.aop.AopAutoConfiguration;
import org.springframework.boot.autoconfigure.jdbc.DataSourceAutoConfiguration;
import org.springframework.boot.autoconfigure.jdbc.JdbcTemplateAutoConfiguration;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.dao.DataAccessException;
import org.springframework.dao.NonTransientDataAccessException;
import org.springframework.dao.TransientDataAccessException;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.jdbc.datasource.DataSourceTransactionManager;
import org.springframework.retry.annotation.EnableRetry;
import org.springframework.retry.annotation.Retryable;
import org.springframework.stereotype.Repository;
import org.springframework.transaction.PlatformTransactionManager;
import org.springframework.transaction.annotation.EnableTransactionManagement;
import org.springframework.transaction.annotation.Transactional;
import org.springframework.transaction.support.TransactionTemplate;

/** With a node of the service, and a PostgreSQL of FENCELOCK_TEST_POSTGRES that has the guard. */
class FencedTest {
    /** A lock that the database has no mark of: the node begins anew, and its tokens at 1. */
    private static final long ID = System.currentTimeMillis();

    private static FencelockServer server;
    private static ConfigurableApplicationContext spring;
    private static Accounts accounts;
    private static JdbcTemplate sql;

    /** A row that a lock protects. */
    @Entity
    @Table(name = "spring_account")
    static class Account {
        @Id
        private String lock;
        private int balance;

        int balance() {
            return balance;
        }
    }

    /** Somebody else gets the lock in the middle, and claims. */
    interface Meanwhile {
        void run() throws Exception;
    }

    static class Accounts {
        private final JdbcTemplate sql;
        private final EntityManager hibernate;
        private final TransactionTemplate transactions;
        private static int attempts;

        Accounts(JdbcTemplate sql, EntityManager hibernate, TransactionTemplate transactions) {
            this.sql = sql;
            this.hibernate = hibernate;
            this.transactions = transactions;
        }

        @Fenced(lock = "'account/' + #p0", waitFor = "4m")
        @Transactional
        public void add(long id, Meanwhile meanwhile) throws Exception {
            int balance = sql.queryForObject("SELECT balance FROM spring_account WHERE lock = 'account/' || ?", Integer.class, id);
            meanwhile.run();
            sql.update("UPDATE spring_account SET balance = ? WHERE lock = 'account/' || ?", balance + 1, id);
        }

        @Fenced(lock = "'account/' + #p0", waitFor = "4m")
        @Transactional
        public void addWithHibernate(long id, Meanwhile meanwhile) throws Exception {
            Account account = hibernate.find(Account.class, "account/" + id);
            meanwhile.run();
            account.balance++; // is written at the commit
        }

        @Retryable(retryFor = {TransientDataAccessException.class, SQLException.class}, maxAttempts = 3)
        @Fenced(lock = "'account/' + #p0", waitFor = "4m")
        @Transactional
        public void addWithRetries(long id, Meanwhile meanwhile) throws Exception {
            attempts++;
            add0(id, meanwhile);
        }

        @Retryable(retryFor = {DataAccessException.class, PersistenceException.class, SQLException.class}, maxAttempts = 3)
        @Fenced(lock = "'account/' + #p0", waitFor = "4m")
        @Transactional
        public void addInARepository(long id, Rows rows, Meanwhile meanwhile) throws Exception {
            attempts++;
            meanwhile.run();
            rows.add("account/" + id);
        }

        @Retryable(maxAttempts = 3)
        @Fenced(lock = "'account/' + #p0", waitFor = "4m")
        @Transactional
        public void addAgainWhatever(long id, Meanwhile meanwhile) throws Exception {
            add0(id, attempts++ == 0 ? meanwhile : () -> { });
        }

        @Fenced(lock = "'account/' + #p0", waitFor = "4m")
        public void inTwoTransactions(long id, Meanwhile meanwhile, Runnable work) throws Exception {
            transactions.executeWithoutResult(t -> work.run());
            meanwhile.run();
            transactions.executeWithoutResult(t -> work.run());
        }

        @Fenced(lock = "'outer/' + #p0")
        public void outer(long id, Meanwhile work) throws Exception {
            work.run();
        }

        @Fenced(lock = "account/42")
        public void withoutQuotes() { }

        @Fenced(lock = "'account/' + #idd")
        public void withAnUnknownName(long id) { }

        @Fenced(lock = "'account/' + #p0", waitFor = "4m")
        public void undeclared(long id) { }

        private void add0(long id, Meanwhile meanwhile) throws Exception {
            meanwhile.run();
            sql.update("UPDATE spring_account SET balance = balance + 1 WHERE lock = 'account/' || ?", id);
        }

        @Transactional
        public void withoutALock() {
            sql.update("UPDATE spring_account SET balance = -1");
        }

        @Fenced(lock = "'account/' + #p0")
        public void busy(long id) { }
    }

    /** Spring makes DataAccessExceptions of what Hibernate throws here. */
    @Repository
    static class Rows {
        private final EntityManager hibernate;

        Rows(EntityManager hibernate) {
            this.hibernate = hibernate;
        }

        public void add(String lock) {
            hibernate.find(Account.class, lock).balance++;
            hibernate.flush();
        }
    }

    /** Its annotation is on the interface. */
    interface Nightly {
        @Fenced(lock = "'nightly #1'")
        void run();
    }

    @SpringBootApplication
    @EnableRetry
    static class App {
        @Bean
        Accounts accounts(JdbcTemplate sql, EntityManager hibernate, TransactionTemplate transactions) {
            return new Accounts(sql, hibernate, transactions);
        }

        @Bean
        Nightly nightly() {
            return () -> assertEquals("nightly #1", Leases.current().orElseThrow().name());
        }
    }

    @BeforeAll
    static void start() {
        String url = System.getenv("FENCELOCK_TEST_POSTGRES");
        assumeTrue(url != null, "FENCELOCK_TEST_POSTGRES names no PostgreSQL with the guard");
        server = FencelockServer.start();
        spring = new SpringApplicationBuilder(App.class).run("--fencelock.url=" + server.url(), "--fencelock.ttl=1h", "--spring.datasource.url=" + url,
            "--spring.main.banner-mode=off", "--logging.level.root=warn", "--spring.jpa.open-in-view=false");
        accounts = spring.getBean(Accounts.class);
        sql = spring.getBean(JdbcTemplate.class);
        sql.execute("DROP TABLE IF EXISTS spring_account");
        sql.execute("CREATE TABLE spring_account (lock text PRIMARY KEY, balance int)");
        sql.execute("INSERT INTO spring_account VALUES ('account/" + ID + "', 0), ('outer/" + ID + "', 0)");
        sql.execute("SELECT fence.protect('spring_account', 'lock')");
    }

    @AfterAll
    static void end() {
        if (spring != null) {
            spring.close();
            server.close();
        }
    }

    @BeforeEach
    void reset() {
        Accounts.attempts = 0;
    }

    private static int balance() {
        return sql.queryForObject("SELECT balance FROM spring_account WHERE lock = 'account/' || ?", Integer.class, ID);
    }

    /** An operator breaks the lock, and a newer holder claims and writes. */
    private static void takenOver() throws Exception {
        String[] address = server.address().split(":");
        try (Socket s = new Socket(address[0], Integer.parseInt(address[1]))) {
            s.getOutputStream().write(("BREAK account/" + ID + "\r\n").getBytes(StandardCharsets.US_ASCII));
            InputStream in = s.getInputStream();
            assertTrue(in.read() != '-');
        }
        try (Fencelock other = Fencelock.connect(server.url()); Lease lease = other.acquire("account/" + ID, Options.NONE)) {
            Fence.claim(spring.getBean(DataSource.class), lease);
        }
    }

    private static void assertNothingOfTheDatabaseInside(Throwable error) {
        for (Throwable e = error; e != null; e = e.getCause()) {
            assertFalse(e instanceof SQLException || e instanceof DataAccessException, String.valueOf(e));
        }
    }

    @Test
    void transactionsCarryTheToken() throws Exception {
        int before = balance();
        accounts.add(ID, () -> assertEquals("account/" + ID, Leases.current().orElseThrow().name()));
        accounts.addWithHibernate(ID, () -> { });
        assertEquals(before + 2, balance());
        assertTrue(Leases.current().isEmpty());
        assertTrue(spring.getBean(Fencelock.class).holder("account/" + ID).isEmpty());
    }

    @Test
    void withoutALockTheGuardRefuses() {
        DataAccessException e = assertThrows(DataAccessException.class, accounts::withoutALock);
        assertTrue(e instanceof NonTransientDataAccessException, String.valueOf(e));
    }

    @Test
    void staleIsTyped() {
        int before = balance();
        assertNothingOfTheDatabaseInside(assertThrows(StaleException.class, () -> accounts.add(ID, FencedTest::takenOver)));
        assertNothingOfTheDatabaseInside(assertThrows(StaleException.class, () -> accounts.addWithHibernate(ID, FencedTest::takenOver)));
        assertEquals(before, balance());
    }

    @Test
    void staleIsNotRepeated() {
        int before = balance();
        assertThrows(StaleException.class, () -> accounts.addWithRetries(ID, FencedTest::takenOver));
        assertEquals(1, Accounts.attempts);
        Rows rows = spring.getBean(Rows.class);
        assertNothingOfTheDatabaseInside(assertThrows(StaleException.class, () -> accounts.addInARepository(ID, rows, FencedTest::takenOver)));
        assertEquals(2, Accounts.attempts);
        assertEquals(before, balance());
        TransactionTemplate plain = new TransactionTemplate(spring.getBean(PlatformTransactionManager.class));
        assertThrows(DataAccessException.class, () -> plain.executeWithoutResult(t -> rows.add("account/" + ID))); // it does translate
    }

    /** A bare Retryable repeats every error; each attempt takes the lock again, with a token of its own. */
    @Test
    void aRetryOfEverythingTakesTheLockAgain() throws Exception {
        int before = balance();
        accounts.addAgainWhatever(ID, FencedTest::takenOver);
        assertEquals(2, Accounts.attempts);
        assertEquals(before + 1, balance());
    }

    /** The lease is over, and the guard has not heard of anybody newer. */
    private static void lose(Lease lease) throws Exception {
        var end = Lease.class.getDeclaredMethod("end", boolean.class);
        end.setAccessible(true);
        end.invoke(lease, true);
        Thread.interrupted();
    }

    @Test
    void theCommitOfALostLeaseIsNotSent() {
        int before = balance();
        assertThrows(LostException.class, () -> accounts.add(ID, () -> lose(Leases.current().orElseThrow())));
        assertEquals(before, balance());
    }

    @Test
    void contentionAndOrder() throws Exception {
        try (Lease lease = spring.getBean(Fencelock.class).acquire("account/" + ID, Options.NONE.ttl(Duration.ofHours(1)))) {
            assertThrows(NotAcquiredException.class, () -> accounts.busy(ID));
            lease.check();
        }
        accounts.busy(ID);
        TransactionTemplate inside = new TransactionTemplate(spring.getBean(PlatformTransactionManager.class));
        assertThrows(IllegalStateException.class, () -> inside.executeWithoutResult(t -> accounts.busy(ID)));
    }

    @Test
    void theAnnotationMayBeOnTheInterface() {
        spring.getBean(Nightly.class).run();
        assertTrue(Leases.current().isEmpty());
    }

    /** The second transaction gets no token: whatever happens in it, the caller hears of STALE. */
    @Test
    void aTransactionWithoutATokenIsStale() {
        for (Runnable work : new Runnable[] {() -> sql.queryForObject("SELECT 1", Integer.class), () -> { }}) {
            assertNothingOfTheDatabaseInside(assertThrows(StaleException.class, () -> accounts.inTwoTransactions(ID, FencedTest::takenOver, work)));
        }
    }

    @Test
    void staleIsTold() {
        StaleException e = assertThrows(StaleException.class, () -> accounts.add(ID, FencedTest::takenOver));
        assertTrue(e.getMessage().contains("STALE token ") && e.getMessage().lines().count() == 1, e.getMessage());
    }

    @Test
    void aClaimThatFailsIsADataAccessException() {
        sql.execute("ALTER SCHEMA fence RENAME TO elsewhere");
        try {
            DataAccessException e = assertThrows(DataAccessException.class, () -> accounts.undeclared(ID));
            assertTrue(e.getMessage().contains("fencelock guard install"), e.getMessage());
        } finally {
            sql.execute("ALTER SCHEMA elsewhere RENAME TO fence");
        }
    }

    /** Whether the method declares the exception or not. */
    @Test
    void anInterruptedWait() throws Exception {
        try (Lease lease = spring.getBean(Fencelock.class).acquire("account/" + ID, Options.NONE.ttl(Duration.ofHours(1)))) {
            Thread.currentThread().interrupt();
            assertThrows(InterruptedException.class, () -> accounts.add(ID, () -> { }));
            Thread.currentThread().interrupt();
            FencelockException e = assertThrows(FencelockException.class, () -> accounts.undeclared(ID));
            assertTrue(Thread.interrupted());
            assertTrue(e.getCause() instanceof InterruptedException && e.getMessage().contains("interrupted"), String.valueOf(e));
            lease.check();
        }
    }

    @Test
    void namesThatAreWrong() {
        IllegalArgumentException e = assertThrows(IllegalArgumentException.class, accounts::withoutQuotes);
        assertTrue(e.getMessage().contains("account/42") && e.getMessage().contains("'nightly'"), e.getMessage());
        e = assertThrows(IllegalArgumentException.class, () -> accounts.withAnUnknownName(ID));
        assertTrue(e.getMessage().contains("#idd") && e.getMessage().contains("-parameters"), e.getMessage());
    }

    @ImportAutoConfiguration({AopAutoConfiguration.class, FencelockAutoConfiguration.class})
    static class Bare {
        static class Jobs {
            @Fenced(lock = "'job'")
            public void run() {
                throw new AssertionError("ran without a lock");
            }
        }

        @Bean
        Jobs jobs() {
            return new Jobs();
        }
    }

    /** Without the property no method may run without its lock. */
    @Test
    void withoutAUrlNothingRuns() {
        try (var bare = new SpringApplicationBuilder(Bare.class).web(WebApplicationType.NONE).run("--spring.main.banner-mode=off", "--logging.level.root=warn")) {
            IllegalStateException e = assertThrows(IllegalStateException.class, bare.getBean(Bare.Jobs.class)::run);
            assertTrue(e.getMessage().contains("fencelock.url"), e.getMessage());
        }
    }

    @ImportAutoConfiguration({AopAutoConfiguration.class, DataSourceAutoConfiguration.class, JdbcTemplateAutoConfiguration.class,
        FencelockAutoConfiguration.class})
    @EnableTransactionManagement
    static class WithAManagerOfItsOwn {
        static class Payments {
            private final JdbcTemplate sql;

            Payments(JdbcTemplate sql) {
                this.sql = sql;
            }

            @Fenced(lock = "'account/' + #p0")
            @Transactional
            public void pay(long id) {
                sql.update("UPDATE spring_account SET balance = balance + 1 WHERE lock = 'account/' || ?", id);
            }
        }

        @Bean
        Payments payments(JdbcTemplate sql) {
            return new Payments(sql);
        }

        @Bean
        PlatformTransactionManager transactions(DataSource database) {
            return new DataSourceTransactionManager(database);
        }
    }

    /** Spring Boot gives its listeners only to the managers that it makes. */
    @Test
    void aTransactionManagerOfTheProgram() {
        int before = balance();
        try (var own = new SpringApplicationBuilder(WithAManagerOfItsOwn.class).web(WebApplicationType.NONE).run("--spring.main.banner-mode=off",
            "--logging.level.root=warn", "--fencelock.url=" + server.url(), "--spring.datasource.url=" + System.getenv("FENCELOCK_TEST_POSTGRES"))) {
            own.getBean(WithAManagerOfItsOwn.Payments.class).pay(ID);
        }
        assertEquals(before + 1, balance());
    }

    /** A transaction that begins inside of two methods carries the tokens of both. */
    @Test
    void nestedMethods() throws Exception {
        int before = balance();
        accounts.outer(ID, () -> accounts.add(ID, () -> {
            assertEquals("account/" + ID, Leases.current().orElseThrow().name());
            assertEquals(1, sql.update("UPDATE spring_account SET balance = balance + 1 WHERE lock = 'outer/' || ?", ID));
        }));
        assertEquals(before + 1, balance());
        assertEquals(Optional.empty(), Leases.current());
    }
}
