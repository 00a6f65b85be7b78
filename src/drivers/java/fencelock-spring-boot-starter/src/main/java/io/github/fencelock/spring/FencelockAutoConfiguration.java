package io.github.fencelock.spring;

import io.github.fencelock.Fencelock;
import javax.sql.DataSource;
import org.springframework.aop.Advisor;
import org.springframework.aop.support.DefaultPointcutAdvisor;
import org.springframework.aop.support.annotation.AnnotationMatchingPointcut;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.beans.factory.config.BeanDefinition;
import org.springframework.beans.factory.config.BeanPostProcessor;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnProperty;
import org.springframework.boot.context.properties.EnableConfigurationProperties;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Role;
import org.springframework.transaction.ConfigurableTransactionManager;

/**
 * A {@link Fencelock} of {@code fencelock.url}, {@link Fenced} methods, and transactions that carry the token. Without a URL and without a
 * Fencelock of your own, a {@link Fenced} method is an {@link IllegalStateException}: it does not run without its lock.
 */
@AutoConfiguration
@EnableConfigurationProperties(FencelockProperties.class)
public class FencelockAutoConfiguration {
    /** Made by Spring. */
    public FencelockAutoConfiguration() { }

    /**
     * The client; a bean of your own takes its place.
     *
     * @param properties say where the nodes are
     * @return a client
     */
    @Bean
    @ConditionalOnMissingBean
    @ConditionalOnProperty("fencelock.url")
    public Fencelock fencelock(FencelockProperties properties) {
        return Fencelock.connect(properties.url());
    }

    /**
     * What runs around {@link Fenced} methods, outside of {@code @Transactional} and inside of {@code @Retryable}.
     *
     * @param locks the client
     * @param properties say the TTL
     * @param database that has the guard, the primary one of several; none: locks only
     * @return for Spring
     */
    @Bean
    @Role(BeanDefinition.ROLE_INFRASTRUCTURE)
    public static Advisor fencelockAdvisor(ObjectProvider<Fencelock> locks, ObjectProvider<FencelockProperties> properties,
                                           ObjectProvider<DataSource> database) {
        DefaultPointcutAdvisor advisor = new DefaultPointcutAdvisor(new AnnotationMatchingPointcut(null, Fenced.class, true),
            new FencedInterceptor(locks, properties, database));
        advisor.setOrder(FencedInterceptor.ORDER);
        return advisor;
    }

    /**
     * Gives the token to each transaction that begins under a lock, also with a transaction manager of your own: Spring Boot itself gives
     * listeners only to the managers that it makes.
     *
     * @param database that has the guard
     * @return for Spring
     */
    @Bean
    @Role(BeanDefinition.ROLE_INFRASTRUCTURE)
    public static BeanPostProcessor fencelockTransactions(ObjectProvider<DataSource> database) {
        FencedTransactions listener = new FencedTransactions(database);
        return new BeanPostProcessor() {
            @Override
            public Object postProcessBeforeInitialization(Object bean, String name) {
                if (bean instanceof ConfigurableTransactionManager manager) {
                    manager.addListener(listener);
                }
                return bean;
            }
        };
    }
}
