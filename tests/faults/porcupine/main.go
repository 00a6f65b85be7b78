// Judges histories of tests/faults with Porcupine, a checker of linearizability that is not ours.
//
//	porcupine [-seconds N] FILE...      history.porcupine of runs; a line for each object, exit code 1 when one has no order
//
// The models are written from docs/PROTOCOL.md and docs/FENCING.md, not from tests/faults/faultlab/linear.py: what the two
// believe about the system is checked by the other.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

// One operation, as faultlab/porcupine.py writes it. Object is "lock X", "key X" or "tokens".
type op struct {
	Object  string  `json:"object"`
	Client  int     `json:"client"`
	F       string  `json:"f"`
	Call    float64 `json:"call"`
	Return  float64 `json:"return"` // of what may happen at any later time, or never: 0
	Token   int64   `json:"token"`  // 0: none. Of an acquire: what was answered
	Holder  string  `json:"holder"` // who holds by an acquire of which nobody knows whether it was done
	Value   string  `json:"value"`
	Known   bool    `json:"known"`   // there is an answer
	Found   bool    `json:"found"`   // the answer is yes
	Retried bool    `json:"retried"` // an earlier try of it may have been done
}

// A lock: who holds it, "" when it is free, and the largest token so far.
type lock struct {
	holder  string
	highest int64
}

func holderOf(o op) string {
	if o.Holder != "" {
		return o.Holder
	}
	return fmt.Sprint(o.Token)
}

func stepLock(s lock, o op) (bool, lock) {
	held := s.holder != "" && s.holder == holderOf(o)
	free := lock{"", s.highest}
	switch {
	case o.F == "acquire" && !o.Known:
		if s.holder == "" {
			s.holder = o.Holder
		}
		return true, s
	case o.F == "acquire" && o.Token == 0: // told that another has it
		return s.holder != "", s
	case o.F == "acquire":
		return s.holder == "" && o.Token > s.highest, lock{holderOf(o), o.Token}
	case o.F == "end" || !o.Known && o.F == "release": // a lease that is over, when the lock is still held under it
		if held {
			return true, free
		}
		return true, s
	case !o.Known:
		return true, s
	case o.F == "release" && o.Found:
		return held, free
	case o.F == "release" && o.Retried:
		if held {
			return true, free
		}
		return true, s
	}
	return held == o.Found, s // renew, check, and a release that finds nothing
}

// What a storage keeps under a key: the value, and the mark of its lock.
type register struct {
	value string
	mark  int64
}

func stepRegister(s register, o op) (bool, register) {
	stale := o.Token != 0 && o.Token < s.mark
	if o.Known && o.F == "stale" {
		return stale, s
	}
	if stale {
		return !o.Known, s
	}
	next := s
	if o.Token != 0 {
		next.mark = o.Token
	}
	if o.F == "write" {
		next.value = o.Value
		return true, next
	}
	return !o.Known || o.Value == s.value, next
}

func model(object string) porcupine.Model {
	switch object[:4] {
	case "lock":
		return porcupine.Model{
			Init:  func() interface{} { return lock{} },
			Step:  func(s, in, out interface{}) (bool, interface{}) { return wrap(stepLock(s.(lock), in.(op))) },
			Equal: func(a, b interface{}) bool { return a == b },
		}
	case "key ":
		return porcupine.Model{
			Init:  func() interface{} { return register{} },
			Step:  func(s, in, out interface{}) (bool, interface{}) { return wrap(stepRegister(s.(register), in.(op))) },
			Equal: func(a, b interface{}) bool { return a == b },
		}
	}
	return porcupine.Model{ // tokens: a counter of which some numbers are told
		Init:  func() interface{} { return int64(0) },
		Step:  func(s, in, out interface{}) (bool, interface{}) { return in.(op).Token > s.(int64), in.(op).Token },
		Equal: func(a, b interface{}) bool { return a == b },
	}
}

func wrap[T any](ok bool, s T) (bool, interface{}) { return ok, s }

func read(name string) (map[string][]porcupine.Operation, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	objects := map[string][]porcupine.Operation{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var o op
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			return nil, fmt.Errorf("%s: %v", name, err)
		}
		if len(o.Object) < 4 {
			return nil, fmt.Errorf("%s: an operation on no object: %s", name, lines.Text())
		}
		end := int64(math.MaxInt64)
		if o.Return != 0 {
			end = int64(o.Return * 1e9)
		}
		objects[o.Object] = append(objects[o.Object], porcupine.Operation{ClientId: o.Client, Input: o, Call: int64(o.Call * 1e9), Return: end})
	}
	return objects, lines.Err()
}

func main() {
	seconds := flag.Int("seconds", 60, "to search at most for each object")
	flag.Parse()
	worst := 0
	for _, name := range flag.Args() {
		objects, err := read(name)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		names := make([]string, 0, len(objects))
		for object := range objects {
			names = append(names, object)
		}
		sort.Strings(names)
		for _, object := range names {
			found := porcupine.CheckOperationsTimeout(model(object), objects[object], time.Duration(*seconds)*time.Second)
			fmt.Printf("%s %s: %d operations\n", found, object, len(objects[object]))
			if found == porcupine.Illegal {
				worst = 1
			} else if found == porcupine.Unknown && worst == 0 {
				worst = 3
			}
		}
	}
	os.Exit(worst)
}
