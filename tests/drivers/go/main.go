// go-redis as a driver: see ../run for what each has to do and print.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/redis/go-redis/v9"
)

var ctx = context.Background()

func connect(roots *x509.CertPool, address, name, password string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: address, Username: name, Password: password, MaxRetries: -1,
		TLSConfig: &tls.Config{RootCAs: roots, ServerName: address[:strings.LastIndex(address, ":")]}})
}

func cluster(roots *x509.CertPool, address, name, password string) string {
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{address}, Username: name, Password: password, MaxRetries: -1,
		TLSConfig: &tls.Config{RootCAs: roots, ServerName: address[:strings.LastIndex(address, ":")]}})
	defer c.Close()
	if err := c.Get(ctx, "a-go").Err(); err != nil {
		return err.Error()
	}
	return ""
}

func number(c *redis.Client, args ...interface{}) int64 {
	n, err := c.Do(ctx, args...).Int64()
	if err != nil {
		fmt.Fprintln(os.Stderr, args, err)
		os.Exit(1)
	}
	return n
}

func errorOf(c *redis.Client, args ...interface{}) string {
	if err := c.Do(ctx, args...).Err(); err != nil {
		return err.Error()
	}
	return ""
}

func main() {
	pem, err := os.ReadFile(os.Args[1])
	roots := x509.NewCertPool()
	if err != nil || !roots.AppendCertsFromPEM(pem) {
		fmt.Fprintln(os.Stderr, "no CA")
		os.Exit(1)
	}
	for _, address := range strings.Split(os.Args[2], ",") {
		c := connect(roots, address, os.Args[3], os.Args[4])
		owner := "driver-of-go-01234567"
		token := number(c, "ACQUIRE", "a-go", "TTL", 60000, "OWNER", owner)
		again := number(c, "ACQUIRE", "a-go", "TTL", 60000, "OWNER", owner)
		held := errors.Is(c.Do(ctx, "ACQUIRE", "a-go", "TTL", 60000, "OWNER", "another-one-0123456").Err(), redis.Nil)
		renewed := number(c, "RENEW", "a-go", token)
		whoami, _ := c.Do(ctx, "ACL", "WHOAMI").Text()
		forbidden := errorOf(c, "ACQUIRE", "b", "TTL", 60000)
		released := number(c, "RELEASE", "a-go", token)
		line, _ := json.Marshal(map[string]interface{}{"token": token, "again": again, "held": held, "renewed": renewed,
			"whoami": whoami, "forbidden": forbidden, "released": released,
			"wrong":   errorOf(connect(roots, address, os.Args[3], "wrong"), "PING"),
			"cluster": cluster(roots, address, os.Args[3], os.Args[4])})
		fmt.Println(string(line))
		c.Close()
	}
}
