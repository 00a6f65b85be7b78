package io.github.fencelock.spring;

import io.github.fencelock.Lease;
import io.github.fencelock.jdbc.Fence;
import java.sql.SQLException;
import javax.sql.DataSource;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.jdbc.datasource.ConnectionHolder;
import org.springframework.transaction.TransactionExecution;
import org.springframework.transaction.TransactionExecutionListener;
import org.springframework.transaction.support.TransactionSynchronization;
import org.springframework.transaction.support.TransactionSynchronizationManager;

/**
 * Gives the token to a transaction when it has begun, on the connection that Spring has bound to it. Where that fails the transaction may
 * only roll back; it has no token, so the guard would refuse its writes in any case.
 */
final class FencedTransactions implements TransactionExecutionListener {
    private static final System.Logger LOG = System.getLogger("io.github.fencelock");

    private final ObjectProvider<DataSource> database;

    FencedTransactions(ObjectProvider<DataSource> database) {
        this.database = database;
    }

    @Override
    public void afterBegin(TransactionExecution transaction, Throwable failure) {
        Lease lease = FencedInterceptor.current();
        DataSource db = database.getIfUnique();
        Object bound = db == null ? null : TransactionSynchronizationManager.getResource(db);
        if (failure != null || lease == null || !(bound instanceof ConnectionHolder holder)) {
            return;
        }
        try {
            Fence.use(holder.getConnection(), lease);
        } catch (SQLException | RuntimeException e) {
            LOG.log(System.Logger.Level.WARNING, "fencelock: the transaction got no token", e);
            transaction.setRollbackOnly();
        }
        if (TransactionSynchronizationManager.isSynchronizationActive()) {
            TransactionSynchronizationManager.registerSynchronization(new TransactionSynchronization() {
                @Override
                public void beforeCommit(boolean readOnly) {
                    lease.check(); // the commit of a lost lease is not sent
                }
            });
        }
    }
}
