// Package fencelocktest starts a node for a test, and ends it with the test.
package fencelocktest

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Start runs a node of its own (the program FENCELOCKD, or fencelockd of the PATH) with an empty directory and free ports, and returns
// its URL for fencelock.Connect.
func Start(t testing.TB) string {
	t.Helper()
	program := os.Getenv("FENCELOCKD")
	if program == "" {
		program = "fencelockd"
	}
	child := exec.Command(program, "--data", t.TempDir()+"/node", "--listen", "127.0.0.1:0", "--peer", freeAddress(t))
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err == nil {
		err = child.Start()
	}
	if err != nil {
		t.Fatalf("fencelocktest: %v: install fencelock, or set FENCELOCKD to the program", err)
	}
	t.Cleanup(func() { _ = child.Process.Kill(); _ = child.Wait() })
	const ready = "listening on "
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if _, address, ok := strings.Cut(lines.Text(), ready); ok {
			go func() { // it must never wait for a reader
				for lines.Scan() {
				}
			}()
			return "fencelock://" + strings.TrimSpace(address)
		}
	}
	t.Fatal("fencelocktest: the node ended before it was ready; its log stands above")
	return ""
}

func freeAddress(t testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
