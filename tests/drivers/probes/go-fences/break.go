package main

import (
	"errors"
	"net"
	"strings"
)

// breakLock is an operator's BREAK, of which the holder hears at its next renewal.
func breakLock(url string) {
	address, _, _ := strings.Cut(strings.TrimPrefix(url, "fencelock://"), ",")
	c, err := net.Dial("tcp", address)
	must("a connection", err, nil)
	defer c.Close()
	_, err = c.Write([]byte("BREAK job\r\n"))
	must("BREAK", err, nil)
	answer := make([]byte, 200)
	n, err := c.Read(answer)
	if must("BREAK", err, nil); answer[0] == '-' {
		must("BREAK", errors.New(string(answer[:n])), nil)
	}
}
