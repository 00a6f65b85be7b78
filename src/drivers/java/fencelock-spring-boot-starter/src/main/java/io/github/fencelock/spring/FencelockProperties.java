package io.github.fencelock.spring;

import java.time.Duration;
import org.springframework.boot.context.properties.ConfigurationProperties;
import org.springframework.boot.context.properties.bind.DefaultValue;

/**
 * The properties {@code fencelock.*}.
 *
 * @param url of the nodes: {@code fencelock://HOST:PORT,HOST:PORT}
 * @param ttl how long a lock outlives a process that dies: 50 ms to a day, and 10 s by default
 */
@ConfigurationProperties("fencelock")
public record FencelockProperties(String url, @DefaultValue("10s") Duration ttl) { }
