package fencelock

import (
	"context"
	"time"
)

// Holder is who holds a lock, as the service knows it. Value is what the holder gave to Value, Label names its process.
type Holder struct {
	Token               int64
	Owner, Label, Value string
	Age                 time.Duration
}

// Holder returns who holds the lock, the first of several; nil when it is free. It takes nothing.
func (c *Client) Holder(ctx context.Context, name string) (*Holder, error) {
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	words := [][]any{{"SHOW", name}}
	a, err := c.nodes.ask(limited, request{words: func() [][]any { return words }, attempt: attemptFirst})
	if err != nil {
		return nil, err
	}
	show := a.replies[0]
	token, _ := field(show, "token").(int64)
	if token == 0 {
		return nil, nil
	}
	h := &Holder{Token: token}
	h.Owner, _ = field(show, "owner").(string)
	h.Label, _ = field(show, "label").(string)
	h.Value, _ = field(show, "value").(string)
	age, _ := field(show, "age_ms").(int64)
	h.Age = time.Duration(age) * time.Millisecond
	return h, nil
}

// field is one value of an answer that has names: a map, or a list of names and values in turn.
func field(show any, name string) any {
	switch m := show.(type) {
	case map[any]any:
		return m[name]
	case []any:
		for i := 0; i+1 < len(m); i += 2 {
			if m[i] == name {
				return m[i+1]
			}
		}
	}
	return nil
}
