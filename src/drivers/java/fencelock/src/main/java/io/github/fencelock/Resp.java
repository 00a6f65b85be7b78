package io.github.fencelock;

import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.ByteArrayOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.SSLSocketFactory;

/**
 * A connection that has logged in, and the protocol on it. Answers are Long, String, List, null, or a {@link Failure}. Blocking; one thread
 * may write while another one reads. A read that finds nothing in time throws {@link SocketTimeoutException}, and may be repeated.
 */
final class Resp implements AutoCloseable {
    private static final int CONNECT_MS = 3000;
    private static final int LINE_MAX = 64 * 1024;
    private static final int BULK_MAX = 16 << 20;
    private static final int LIST_MAX = 1 << 20;
    private static final int DEPTH_MAX = 8;

    /** The line of an error answer. */
    record Failure(String line) {
        String word() {
            return line.split(" ", 2)[0];
        }
    }

    private final Socket raw;
    private InputStream in;
    private OutputStream out;

    private Resp(Socket raw) {
        this.raw = raw;
    }

    /** An IOException means that nothing was asked for yet. A login that is refused is a {@link RefusedException}. */
    static Resp open(Target target, Target.Address address, SSLSocketFactory tls, String label) throws IOException {
        Resp r = new Resp(new Socket());
        boolean done = false;
        try {
            r.connect(target, address, tls);
            r.login(target, label);
            r.timeout(0);
            done = true;
            return r;
        } finally {
            if (!done) {
                r.close();
            }
        }
    }

    private void connect(Target target, Target.Address address, SSLSocketFactory tls) throws IOException {
        raw.setTcpNoDelay(true);
        raw.setKeepAlive(true);
        raw.connect(new InetSocketAddress(address.host(), address.port()), CONNECT_MS);
        timeout(CONNECT_MS);
        Socket socket = raw;
        if (target.tls()) {
            SSLSocket secure = (SSLSocket) tls.createSocket(raw, address.host(), address.port(), true);
            SSLParameters p = secure.getSSLParameters();
            p.setEndpointIdentificationAlgorithm("HTTPS"); // the name in the certificate is checked
            secure.setSSLParameters(p);
            secure.startHandshake();
            socket = secure;
        }
        in = new BufferedInputStream(socket.getInputStream());
        out = new BufferedOutputStream(socket.getOutputStream());
    }

    // The name is for operators: a user without the right to give it works without.
    private void login(Target target, String label) throws IOException {
        if (target.user() != null) {
            write(List.of(List.of("AUTH", target.user(), target.password())));
            Object said = read();
            if (said instanceof Failure f && !Nodes.isPassing(f)) {
                throw new RefusedException(f.line());
            }
            if (!"OK".equals(said)) {
                throw new IOException("the login was answered by " + said);
            }
        }
        write(List.of(List.of("CLIENT", "SETNAME", label)));
        read();
    }

    void timeout(int ms) throws IOException {
        raw.setSoTimeout(ms);
    }

    void write(List<List<String>> requests) throws IOException {
        for (List<String> words : requests) {
            head('*', words.size());
            for (String word : words) {
                byte[] bytes = word.getBytes(StandardCharsets.UTF_8);
                head('$', bytes.length);
                out.write(bytes);
                out.write('\r');
                out.write('\n');
            }
        }
        out.flush();
    }

    private void head(char type, int n) throws IOException {
        out.write(type);
        out.write(Integer.toString(n).getBytes(StandardCharsets.US_ASCII));
        out.write('\r');
        out.write('\n');
    }

    /** The next answer. */
    Object read() throws IOException {
        int type = in.read();
        try {
            return read(type, 0);
        } catch (SocketTimeoutException e) {
            throw new IOException("the node stopped in the middle of an answer", e);
        }
    }

    private Object read(int type, int depth) throws IOException {
        if (type < 0) {
            throw new EOFException("the node closed the connection");
        }
        String line = line();
        return switch (type) {
            case '+' -> line;
            case '-' -> new Failure(line);
            case ':' -> number(line, Long.MIN_VALUE, Long.MAX_VALUE);
            case '$' -> bulk((int) number(line, -1, BULK_MAX));
            case '*' -> list((int) number(line, -1, LIST_MAX), depth);
            default -> throw new IOException("the answer is not of the protocol");
        };
    }

    private String line() throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream(64);
        for (int c = in.read(); c != '\r'; c = in.read()) {
            if (c < 0 || bytes.size() > LINE_MAX) {
                throw new IOException("a line of the answer does not end");
            }
            bytes.write(c);
        }
        if (in.read() != '\n') {
            throw new IOException("a line of the answer ends without a line feed");
        }
        return bytes.toString(StandardCharsets.UTF_8);
    }

    private static long number(String line, long least, long most) throws IOException {
        try {
            long n = Long.parseLong(line);
            if (n >= least && n <= most) {
                return n;
            }
        } catch (NumberFormatException e) {
            // said below
        }
        throw new IOException("the answer has a wrong number");
    }

    private String bulk(int n) throws IOException {
        if (n < 0) {
            return null;
        }
        byte[] bytes = in.readNBytes(n);
        if (bytes.length < n || in.read() != '\r' || in.read() != '\n') {
            throw new IOException("the answer is cut");
        }
        return new String(bytes, StandardCharsets.UTF_8);
    }

    private List<Object> list(int n, int depth) throws IOException {
        if (n < 0) {
            return null;
        }
        if (depth >= DEPTH_MAX) {
            throw new IOException("the answer is nested too deep");
        }
        List<Object> all = new ArrayList<>(Math.min(n, 1024));
        for (int i = 0; i < n; i++) {
            all.add(read(in.read(), depth + 1));
        }
        return all;
    }

    /** From any thread; it ends a read and a write that another thread is in. The socket below TLS is closed, since TLS would wait for them. */
    @Override
    public void close() {
        try {
            raw.close();
        } catch (IOException e) {
            // nothing is left to close
        }
    }
}
