// attack is a session of the Go guard for the suite of attacks: a line of JSON in, one out.
//
//	attack ENDPOINT REGION BUCKET        credentials from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY
//	{"do": "write", "lock": "l", "token": 5, "keys": ["k"], "content": "text"}
//	{"word": "ok", "content": "text", "mark": 5} | {"word": "STALE", "text": "..."} | {"word": "unknown", "text": "..."}
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	fences3 "github.com/fencelock/fencelock/src/guards/s3/go"
)

type request struct {
	Do, Lock, Content string
	Token             json.Number
	Keys              []string
}

type answer struct {
	Word    string  `json:"word"`
	Text    string  `json:"text,omitempty"`
	Content *string `json:"content"`
	Mark    int64   `json:"mark"`
}

func client(endpoint, region string) *s3.Client {
	credentials := aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{AccessKeyID: os.Getenv("AWS_ACCESS_KEY_ID"), SecretAccessKey: os.Getenv("AWS_SECRET_ACCESS_KEY")}, nil
	})
	return s3.New(s3.Options{Region: region, Credentials: credentials, BaseEndpoint: aws.String(endpoint), UsePathStyle: true})
}

func text(content []byte) *string {
	if content == nil {
		return nil
	}
	return aws.String(string(content))
}

func do(fence *fences3.Objects, r request) (answer, error) {
	reply, done := answer{Word: "ok"}, error(nil)
	background := context.Background()
	token, err := r.Token.Int64()
	if err != nil {
		return reply, &fences3.Refused{Word: "REFUSED", Text: "a token is a number, not " + r.Token.String()}
	}
	if len(r.Keys) == 0 {
		return reply, errors.New("no key")
	}
	var content []byte
	switch r.Do {
	case "claim":
		done = fence.Claim(background, r.Lock, token, r.Keys...)
	case "read":
		content, done = fence.Read(background, r.Lock, token, r.Keys[0])
	case "write":
		done = fence.Write(background, r.Lock, token, r.Keys[0], []byte(r.Content))
	case "delete":
		done = fence.Delete(background, r.Lock, token, r.Keys[0])
	case "adopt":
		done = fence.Adopt(background, r.Lock, token, r.Keys[0])
	case "peek":
		content, reply.Mark, done = fence.Peek(background, r.Keys[0])
	default:
		done = fmt.Errorf("%q is not known", r.Do)
	}
	reply.Content = text(content)
	return reply, done
}

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: attack ENDPOINT REGION BUCKET")
		os.Exit(2)
	}
	fence := &fences3.Objects{Client: client(os.Args[1], os.Args[2]), Bucket: os.Args[3]}
	in, out := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	in.Buffer(nil, 1<<24)
	for in.Scan() {
		var r request
		err := json.Unmarshal(in.Bytes(), &r)
		reply := answer{}
		if err == nil {
			reply, err = do(fence, r)
		}
		var refused *fences3.Refused
		var unknown *fences3.Unknown
		if errors.As(err, &refused) {
			reply = answer{Word: refused.Word, Text: err.Error()}
		} else if errors.As(err, &unknown) {
			reply = answer{Word: "unknown", Text: err.Error()}
		} else if err != nil {
			reply = answer{Word: "error", Text: err.Error()}
		}
		if out.Encode(reply) != nil {
			return
		}
	}
}
