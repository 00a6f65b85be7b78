package io.github.fencelock.test;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;

/**
 * A node with an empty directory and a free port, which ends with {@link #close}, or with the JVM. It is the program that FENCELOCKD names,
 * or {@code fencelockd} of the PATH.
 */
public final class FencelockServer implements AutoCloseable {
    private static final String READY = "listening on ";

    private final Process process;
    private final Path directory;
    private final Thread atExit = new Thread(this::end);
    private String address;

    private FencelockServer(String... options) throws IOException {
        directory = Files.createTempDirectory("fencelock-test");
        String program = Map.copyOf(System.getenv()).getOrDefault("FENCELOCKD", "fencelockd");
        List<String> words = Stream.concat(Stream.of(program, "--data", directory.resolve("node").toString(), "--listen", "127.0.0.1:0",
            "--peer", freeAddress()), Stream.of(options)).toList();
        try {
            process = new ProcessBuilder(words).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        } catch (IOException e) {
            delete();
            throw new IOException("install fencelock, or set FENCELOCKD to the program", e);
        }
        Runtime.getRuntime().addShutdownHook(atExit);
    }

    /**
     * Starts a node, and waits until it serves.
     *
     * @param options further options of {@code fencelockd}
     * @return the node
     */
    public static FencelockServer start(String... options) {
        try {
            FencelockServer s = new FencelockServer(options);
            s.waitUntilReady();
            return s;
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private void waitUntilReady() throws IOException {
        BufferedReader out = process.inputReader(StandardCharsets.UTF_8);
        for (String line = out.readLine(); line != null && address == null; line = address == null ? out.readLine() : line) {
            int at = line.indexOf(READY);
            address = at < 0 ? null : line.substring(at + READY.length()).trim();
        }
        if (address == null) {
            close();
            throw new IOException("the node ended before it was ready; its log stands above");
        }
        Thread drain = new Thread(() -> drain(out), "fencelockd-output"); // it must never wait for a reader
        drain.setDaemon(true);
        drain.start();
    }

    private static void drain(BufferedReader out) {
        try {
            out.lines().forEach(line -> { });
        } catch (UncheckedIOException e) {
            // the node has ended
        }
    }

    private static String freeAddress() throws IOException {
        try (ServerSocket s = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            return "127.0.0.1:" + s.getLocalPort();
        }
    }

    /** @return for {@code Fencelock.connect} */
    public String url() {
        return "fencelock://" + address;
    }

    /** @return HOST:PORT */
    public String address() {
        return address;
    }

    /** @return the process, for a test that stops or kills it */
    public Process process() {
        return process;
    }

    /** Kills the node, and removes its directory. */
    @Override
    public void close() {
        Runtime.getRuntime().removeShutdownHook(atExit);
        end();
    }

    private void end() {
        process.destroyForcibly().onExit().join();
        delete();
    }

    private void delete() {
        try (Stream<Path> all = Files.walk(directory)) {
            for (Path p : all.sorted(Comparator.reverseOrder()).toList()) {
                Files.delete(p);
            }
        } catch (IOException e) {
            System.err.println("fencelock-test: " + directory + " stays: " + e);
        }
    }
}
