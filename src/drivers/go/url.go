package fencelock

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
)

const nodesMax = 16

// target is what a URL says: fencelock://[USER:PASSWORD@]HOST:PORT[,HOST:PORT...][/], or fencelocks:// for TLS.
type target struct {
	tls            bool
	addresses      []string
	user, password string
}

// parse never quotes the URL in its errors, since a password may stand in it.
func parse(text string) (*target, error) {
	var t target
	rest, plain := strings.CutPrefix(text, "fencelock://")
	if !plain {
		if rest, t.tls = strings.CutPrefix(text, "fencelocks://"); !t.tls {
			return nil, wrongURL("the URL is of another kind")
		}
	}
	rest = strings.TrimSuffix(rest, "/")
	if at := strings.LastIndex(rest, "@"); at >= 0 {
		user, password, both := strings.Cut(rest[:at], ":")
		var err1, err2 error
		t.user, err1 = url.PathUnescape(user)
		t.password, err2 = url.PathUnescape(password)
		if !both || err1 != nil || err2 != nil || t.user == "" || t.password == "" {
			return nil, wrongURL("the user or the password of the URL is missing, or has a % without two hex digits behind it")
		}
		rest = rest[at+1:]
	}
	for _, address := range strings.Split(rest, ",") {
		host, port, err := net.SplitHostPort(address)
		n, bad := strconv.ParseUint(port, 10, 16)
		if err != nil || bad != nil || host == "" || n == 0 {
			return nil, wrongURL(fmt.Sprintf("%q is no HOST:PORT", address))
		}
		t.addresses = append(t.addresses, address)
	}
	if len(t.addresses) > nodesMax {
		return nil, wrongURL(fmt.Sprintf("the URL names %d nodes, and %d are the most", len(t.addresses), nodesMax))
	}
	return &t, nil
}

func wrongURL(why string) error {
	return errors.New("fencelock: " + why + ": write fencelock://HOST:PORT, or fencelocks://USER:PASSWORD@HOST:PORT,HOST:PORT")
}
