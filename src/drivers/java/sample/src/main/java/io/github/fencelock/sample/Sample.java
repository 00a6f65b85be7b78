package io.github.fencelock.sample;

import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.scheduling.annotation.EnableScheduling;

/** Pays interest once a minute, however many instances of it run. */
@SpringBootApplication
@EnableScheduling
public class Sample {
    public static void main(String[] args) {
        SpringApplication.run(Sample.class, args);
    }
}
