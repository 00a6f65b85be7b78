package io.github.fencelock.jdbc;

import io.github.fencelock.Lease;
import io.github.fencelock.StaleException;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import javax.sql.DataSource;

/**
 * A lease that the database knows. From the claim on the database refuses every older token; transactions of the fence carry the lease's
 * token. What is stale is a {@link StaleException}: nothing was written, and no retry under this lease cures it.
 *
 * <pre>{@code
 * Fence.claim(dataSource, lease).transaction(c -> c.createStatement().executeUpdate("UPDATE account SET ..."));
 * }</pre>
 */
public final class Fence {
    private static final String STALE = "44L01"; // the guard's SQLSTATE: this lease will never be admitted

    private final DataSource dataSource;
    private final Lease lease;

    private Fence(DataSource dataSource, Lease lease) {
        this.dataSource = dataSource;
        this.lease = lease;
    }

    /** Statements of one transaction. */
    @FunctionalInterface
    public interface Work {
        /**
         * Does them.
         *
         * @param connection in a transaction that carries the token; the fence commits it
         * @throws SQLException of the database
         */
        void run(Connection connection) throws SQLException;
    }

    /**
     * Tells the database of the lease. Claim before the first read.
     *
     * @param dataSource gives connections
     * @param lease is told
     * @return for transactions
     * @throws SQLException of the database
     * @throws StaleException when a newer holder has claimed: the lease is over
     */
    public static Fence claim(DataSource dataSource, Lease lease) throws SQLException {
        lease.check();
        try (Connection c = dataSource.getConnection()) {
            call(c, "CALL fence.claim(?, ?)", lease);
            if (!c.getAutoCommit()) {
                c.commit();
            }
        } catch (SQLException e) {
            throw translate(e);
        }
        return new Fence(dataSource, lease);
    }

    /**
     * Lets the running transaction carry the lease's token, for those who begin and commit by themselves. It is the first statement.
     *
     * @param connection in a transaction
     * @param lease whose token the transaction carries
     * @throws SQLException of the database
     */
    public static void use(Connection connection, Lease lease) throws SQLException {
        try {
            call(connection, "SELECT fence.use(?, ?)", lease);
        } catch (SQLException e) {
            throw translate(e);
        }
    }

    private static void call(Connection c, String sql, Lease lease) throws SQLException {
        try (PreparedStatement s = c.prepareStatement(sql)) {
            s.setString(1, lease.name());
            s.setLong(2, lease.token());
            s.execute();
        }
    }

    /**
     * Runs the work in a transaction that carries the lease's token, and commits it. The commit of a lost lease is not sent.
     *
     * @param work its statements
     * @throws SQLException of the database
     * @throws StaleException when a newer holder has claimed; nothing was written
     */
    public void transaction(Work work) throws SQLException {
        lease.check();
        try (Connection c = dataSource.getConnection()) {
            boolean auto = c.getAutoCommit();
            boolean done = false;
            c.setAutoCommit(false);
            try {
                use(c, lease);
                work.run(c);
                lease.check();
                c.commit();
                done = true;
            } finally {
                end(c, auto, done);
            }
        } catch (SQLException e) {
            throw translate(e);
        }
    }

    // What fails here must not hide the error of the work; the pool finds out about the connection by itself.
    private static void end(Connection c, boolean auto, boolean done) {
        try {
            if (!done) {
                c.rollback();
            }
            c.setAutoCommit(auto);
        } catch (SQLException e) {
            if (done) {
                System.getLogger("io.github.fencelock").log(System.Logger.Level.DEBUG, "fencelock: after a commit", e);
            }
        }
    }

    /**
     * Makes a {@link StaleException} of the guard's STALE. It does not wrap the error of the database, which frameworks look for.
     *
     * @param error any, also one that wraps the error of the database
     * @return the same error when it is another one
     * @param <E> its kind
     * @throws StaleException when it is STALE
     */
    public static <E extends Throwable> E translate(E error) {
        int depth = 0;
        for (Throwable e = error; e != null && depth < 32; e = e.getCause(), depth++) {
            for (SQLException s = e instanceof SQLException x ? x : null; s != null && depth < 32; s = s.getNextException(), depth++) {
                if (STALE.equals(s.getSQLState())) {
                    throw new StaleException(firstLine(s));
                }
            }
        }
        return error;
    }

    /** The rest says where in the guard it was found. */
    private static String firstLine(SQLException e) {
        return String.valueOf(e.getMessage()).lines().findFirst().orElse("");
    }
}
