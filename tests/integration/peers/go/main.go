// Libraries in Go as peers: see redlock_peers.py for the lines that it reads and writes.
//
//	peer redsync|redislock|cluster HOST:PORT,... [sentinel]
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	pools "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

type peer interface {
	lock(key string, ttl time.Duration) (string, error)
	extend(ttl time.Duration) (string, error)
	unlock() (string, error)
	token() (string, error)
}

// The fencing token of a lock that fencelockd serves (docs/FRONTDOOR.md).
func tokenOf(one *redis.Client, key, value string) (string, error) {
	token, err := one.Do(context.Background(), "LOCKTOKEN", key, value).Int64()
	if err == redis.Nil {
		return "none", nil
	}
	return fmt.Sprintf("token %d", token), err
}

type redsyncPeer struct {
	rs    *redsync.Redsync
	one   *redis.Client
	mutex *redsync.Mutex
}

func (p *redsyncPeer) lock(key string, ttl time.Duration) (string, error) {
	mutex := p.rs.NewMutex(key, redsync.WithExpiry(ttl), redsync.WithTries(1))
	err := mutex.Lock()
	var taken *redsync.ErrTaken
	if err == redsync.ErrFailed || errors.As(err, &taken) {
		return "refused", nil
	} else if err != nil {
		return "", err
	}
	p.mutex = mutex
	return "held", nil
}

// The time of an extend is that of the mutex, so a longer one needs a mutex of the same value.
func (p *redsyncPeer) extend(ttl time.Duration) (string, error) {
	longer := p.rs.NewMutex(p.mutex.Name(), redsync.WithExpiry(ttl), redsync.WithTries(1),
		redsync.WithValue(p.mutex.Value()))
	ok, err := longer.Extend()
	return answer(ok, err, "held")
}

func (p *redsyncPeer) unlock() (string, error) {
	ok, err := p.mutex.Unlock()
	return answer(ok, err, "freed")
}

func (p *redsyncPeer) token() (string, error) {
	return tokenOf(p.one, p.mutex.Name(), p.mutex.Value())
}

func answer(ok bool, err error, word string) (string, error) {
	var taken *redsync.ErrTaken
	if ok {
		return word, nil
	}
	if err == nil || err == redsync.ErrExtendFailed || err == redsync.ErrLockAlreadyExpired || errors.As(err, &taken) {
		return "lost", nil
	}
	return "", err
}

type redislockPeer struct {
	client *redislock.Client
	one    *redis.Client
	held   *redislock.Lock
}

func (p *redislockPeer) lock(key string, ttl time.Duration) (string, error) {
	held, err := p.client.Obtain(context.Background(), key, ttl, nil)
	if err == redislock.ErrNotObtained {
		return "refused", nil
	} else if err != nil {
		return "", err
	}
	p.held = held
	return "held", nil
}

func (p *redislockPeer) extend(ttl time.Duration) (string, error) {
	err := p.held.Refresh(context.Background(), ttl, nil)
	if err == redislock.ErrNotObtained {
		return "lost", nil
	}
	return "held", err
}

func (p *redislockPeer) unlock() (string, error) {
	err := p.held.Release(context.Background())
	if err == redislock.ErrLockNotHeld {
		return "lost", nil
	}
	return "freed", err
}

func (p *redislockPeer) token() (string, error) {
	return tokenOf(p.one, p.held.Key(), p.held.Token()+p.held.Metadata())
}

func run(p peer, words []string) (string, error) {
	switch words[0] {
	case "lock":
		ms, err := strconv.Atoi(words[2])
		if err != nil {
			return "", err
		}
		return p.lock(words[1], time.Duration(ms)*time.Millisecond)
	case "extend":
		ms, err := strconv.Atoi(words[1])
		if err != nil {
			return "", err
		}
		return p.extend(time.Duration(ms) * time.Millisecond)
	case "token":
		return p.token()
	default:
		return p.unlock()
	}
}

// PEER_CA, a file: with TLS. PEER_USER and PEER_PASSWORD: who logs in.
func options(address string) *redis.Options {
	o := &redis.Options{Addr: address, Username: os.Getenv("PEER_USER"), Password: os.Getenv("PEER_PASSWORD")}
	if path := os.Getenv("PEER_CA"); path != "" {
		pem, err := os.ReadFile(path)
		if err != nil {
			panic(err)
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(pem)
		o.TLSConfig = &tls.Config{RootCAs: pool}
	}
	return o
}

// The addresses are those of sentinels, with the same user and TLS.
func throughSentinel(addresses []string) *redis.Client {
	o := options(addresses[0])
	return redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "mymaster", SentinelAddrs: addresses,
		Username: o.Username, Password: o.Password, SentinelUsername: o.Username, SentinelPassword: o.Password,
		TLSConfig: o.TLSConfig})
}

// go-redis, set up for a Redis Cluster.
type clusterPeer struct{ addresses []string }

func (p *clusterPeer) lock(key string, ttl time.Duration) (string, error) {
	one := redis.NewClusterClient(&redis.ClusterOptions{Addrs: p.addresses})
	defer one.Close()
	return "held", one.SetNX(context.Background(), key, "value", ttl).Err()
}

func (p *clusterPeer) extend(ttl time.Duration) (string, error) { return "", errors.New("not here") }
func (p *clusterPeer) unlock() (string, error)                  { return "", errors.New("not here") }
func (p *clusterPeer) token() (string, error)                   { return "", errors.New("not here") }

func main() {
	var all []pools.Pool
	var one *redis.Client
	if len(os.Args) > 3 {
		one = throughSentinel(strings.Split(os.Args[2], ","))
		all = append(all, goredis.NewPool(one))
		os.Args[2] = ""
	}
	for _, address := range strings.FieldsFunc(os.Args[2], func(c rune) bool { return c == ',' }) {
		o := options(address)
		// The default of 3 s is short for a busy machine: a request that is sent again finds what the first one did.
		o.DialTimeout, o.ReadTimeout, o.WriteTimeout = 240*time.Second, 240*time.Second, 240*time.Second
		one = redis.NewClient(o)
		all = append(all, goredis.NewPool(one))
	}
	var p peer = &redsyncPeer{rs: redsync.New(all...), one: one}
	if os.Args[1] == "redislock" {
		p = &redislockPeer{client: redislock.New(one), one: one}
	}
	if os.Args[1] == "cluster" {
		p = &clusterPeer{addresses: strings.Split(os.Args[2], ",")}
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		text, err := run(p, strings.Fields(lines.Text()))
		if err != nil {
			text = "error " + strings.ReplaceAll(err.Error(), "\n", " ")
		}
		fmt.Println(text)
	}
}
