package fencelock

import (
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrLost is the cause of a lease's context when the lock is lost: another client may hold it from now on. Stop.
	ErrLost = errors.New("fencelock: the lock is lost; another client may hold it from now on")
	// ErrReleased is the cause of a lease's context after its Release.
	ErrReleased = errors.New("fencelock: the lock was released")
	// ErrNotAcquired means that other clients held the lock for as long as Acquire was to wait.
	ErrNotAcquired = errors.New("fencelock: another client holds the lock")
	// ErrStale means that a newer holder has been at the storage, so nothing was done there. Do not try it again under this token.
	ErrStale = errors.New("fencelock: a newer holder of the lock has been at the storage")
	// ErrUncertain means that the outcome is unknown: the request may have been carried out.
	ErrUncertain = errors.New("fencelock: the outcome is unknown")
	// ErrUnavailable means that no node answered, or that none leads, for as long as the request could wait. It was not carried out.
	ErrUnavailable = errors.New("fencelock: no node serves")
	// ErrClosed means that the client was closed.
	ErrClosed = errors.New("fencelock: the client is closed")
)

// Error is a refusal by the service: surely not done, and sending it again will not help.
type Error struct {
	Word    string // the first word of the answer: ERR, LIMIT, NOPERM, MISMATCH, NOAUTH, ...
	Message string // the sentence behind it: what happened, in which argument, and what to do
}

func (e *Error) Error() string { return "fencelock: " + e.Word + " " + e.Message }

// refusal splits the line of an error answer.
func refusal(line string) *Error {
	word, message, _ := strings.Cut(line, " ")
	return &Error{Word: word, Message: message}
}

func isWord(err error, word string) bool {
	var e *Error
	return errors.As(err, &e) && e.Word == word
}

func because(err, cause error) error {
	if cause == nil {
		return err
	}
	return fmt.Errorf("%w (%w)", err, cause)
}
