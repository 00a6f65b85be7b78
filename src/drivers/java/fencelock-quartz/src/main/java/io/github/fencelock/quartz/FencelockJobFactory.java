package io.github.fencelock.quartz;

import io.github.fencelock.Fencelock;
import io.github.fencelock.FencelockException;
import io.github.fencelock.Lease;
import io.github.fencelock.NotAcquiredException;
import io.github.fencelock.Options;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.quartz.InterruptableJob;
import org.quartz.Job;
import org.quartz.JobExecutionContext;
import org.quartz.JobExecutionException;
import org.quartz.Scheduler;
import org.quartz.SchedulerException;
import org.quartz.UnableToInterruptJobException;
import org.quartz.simpl.PropertySettingJobFactory;
import org.quartz.spi.JobFactory;
import org.quartz.spi.TriggerFiredBundle;

/**
 * Runs each job of a scheduler under the lock {@code quartz/GROUP.NAME} of its key. Several schedulers have the same jobs and triggers, each
 * in its own memory; the first one to fire gets the lock, and the others skip this run. The lock is renewed while the job runs. When it is
 * lost, the thread of the job is interrupted. The job finds its fencing token in {@link #lease}.
 *
 * <p>A run may be over before a scheduler whose clock is late fires for the same time. So the lock is kept for {@code atLeast} after
 * the job began, as long as this process lives. Give more than the clocks differ, and less than the time between two runs.
 *
 * <p>A job that gets no lock because no node serves does not run, and its listeners are told a {@link JobExecutionException}.
 */
public final class FencelockJobFactory implements JobFactory {
    private static final System.Logger LOG = System.getLogger("io.github.fencelock");
    private static final String PREFIX = "quartz/";

    private final Fencelock locks;
    private final Options options;
    private final Duration atLeast;
    private final JobFactory jobs;

    /**
     * With a TTL of 10 s. Quartz makes the jobs as it does by default.
     *
     * @param locks the client
     * @param atLeast how long a lock is kept after its job began, also if the job is over earlier; zero or more
     */
    public FencelockJobFactory(Fencelock locks, Duration atLeast) {
        this(locks, Options.NONE, atLeast, new PropertySettingJobFactory());
    }

    /**
     * With a TTL and a factory of your own, such as Spring's {@code SpringBeanJobFactory}.
     *
     * @param locks the client
     * @param options TTL, value, and how long a run waits for the lock before it is skipped; not at all by default
     * @param atLeast how long a lock is kept after its job began, also if the job is over earlier; zero or more
     * @param jobs makes the jobs
     */
    public FencelockJobFactory(Fencelock locks, Options options, Duration atLeast, JobFactory jobs) {
        if (atLeast.isNegative()) {
            throw new IllegalArgumentException("atLeast " + atLeast + ": give 0 or more");
        }
        this.locks = locks;
        this.options = options;
        this.atLeast = atLeast;
        this.jobs = jobs;
    }

    /**
     * The lease of the job that runs, for its token and for {@code check()}.
     *
     * @param context of the job
     * @return its lease
     * @throws IllegalStateException when the scheduler has another job factory
     */
    public static Lease lease(JobExecutionContext context) {
        if (context.getJobInstance() instanceof Fenced fenced && fenced.lease != null) {
            return fenced.lease;
        }
        throw new IllegalStateException("the job " + context.getJobDetail().getKey()
            + " has no lease: give the scheduler a FencelockJobFactory with setJobFactory");
    }

    @Override
    public Job newJob(TriggerFiredBundle bundle, Scheduler scheduler) throws SchedulerException {
        return new Fenced(jobs.newJob(bundle, scheduler));
    }

    /** A job and its lock, for one run. */
    private final class Fenced implements InterruptableJob {
        private final Job job;
        private volatile Lease lease;

        Fenced(Job job) {
            this.job = job;
        }

        @Override
        public void execute(JobExecutionContext context) throws JobExecutionException {
            String name = PREFIX + context.getJobDetail().getKey();
            long began = System.nanoTime();
            try {
                lease = locks.acquire(name, options).interruptOnLoss();
            } catch (NotAcquiredException e) {
                LOG.log(System.Logger.Level.DEBUG, "fencelock: another scheduler has {0}", name);
                return;
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
                throw new JobExecutionException("interrupted while it waited for the lock " + name, e);
            } catch (FencelockException | IllegalArgumentException e) {
                throw new JobExecutionException("no lock " + name + ": " + e.getMessage(), e);
            }
            try {
                job.execute(context);
            } finally {
                end(atLeast.minusNanos(System.nanoTime() - began));
            }
        }

        private void end(Duration left) {
            if (left.isNegative() || left.isZero()) {
                lease.close();
            } else {
                lease.interruptNoMore();
                CompletableFuture.delayedExecutor(left.toNanos(), TimeUnit.NANOSECONDS).execute(lease::close);
            }
        }

        @Override
        public void interrupt() throws UnableToInterruptJobException {
            if (!(job instanceof InterruptableJob interruptable)) {
                throw new UnableToInterruptJobException(job.getClass().getName() + " is no InterruptableJob");
            }
            interruptable.interrupt();
        }
    }
}
