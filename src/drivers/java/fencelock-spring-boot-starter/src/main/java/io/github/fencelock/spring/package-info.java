/** Methods under a lock, whose transactions carry its token: {@link io.github.fencelock.spring.Fenced}. */
package io.github.fencelock.spring;
