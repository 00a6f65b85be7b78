package io.github.fencelock.spring;

import io.github.fencelock.Lease;
import io.github.fencelock.jdbc.Fence;
import java.sql.SQLException;
import java.util.List;
import javax.sql.DataSource;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.jdbc.datasource.ConnectionHolder;
import org.springframework.transaction.TransactionExecution;
import org.springframework.transaction.TransactionExecutionListener;
import org.springframework.transaction.support.TransactionSynchronization;
import org.springframework.transaction.support.TransactionSynchronizationManager;

/**
 * Gives the token to a transaction when it has begun, on the connection that Spring has bound to it. Where that fails the commit is not
 * sent, and the caller gets the error: an error that a listener throws at the beginning would leave the connection bound.
 */
final class FencedTransactions implements TransactionExecutionListener {
    private final ObjectProvider<DataSource> database;

    FencedTransactions(ObjectProvider<DataSource> database) {
        this.database = database;
    }

    @Override
    public void afterBegin(TransactionExecution transaction, Throwable failure) {
        List<Lease> leases = Leases.all(); // of nested methods, too: a transaction may write rows of each lock
        DataSource db = database.getIfUnique();
        Object bound = db == null ? null : TransactionSynchronizationManager.getResource(db);
        if (failure != null || leases.isEmpty() || !(bound instanceof ConnectionHolder holder)) {
            return;
        }
        RuntimeException noToken = use(holder, leases);
        if (!TransactionSynchronizationManager.isSynchronizationActive()) {
            if (noToken != null) {
                transaction.setRollbackOnly();
            }
            return;
        }
        TransactionSynchronizationManager.registerSynchronization(new TransactionSynchronization() {
            @Override
            public void beforeCommit(boolean readOnly) {
                if (noToken != null) {
                    throw noToken;
                }
                leases.forEach(Lease::check); // the commit of a lost lease is not sent
            }
        });
    }

    /** Null when the transaction has the token. */
    private static RuntimeException use(ConnectionHolder holder, List<Lease> leases) {
        try {
            for (Lease lease : leases) {
                Fence.use(holder.getConnection(), lease);
            }
            return null;
        } catch (SQLException e) {
            return FencedInterceptor.translated("give a token to a transaction", e);
        } catch (RuntimeException e) {
            return e;
        }
    }
}
