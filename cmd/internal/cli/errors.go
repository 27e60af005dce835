package cli

import "errors"

// Exit statuses.
const (
	ExitOK      = 0
	ExitFailure = 1 // it could not be done
	ExitUsage   = 2 // the command line is wrong
)

// usageError is a command line that cannot be meant.
type usageError struct {
	message string
	hint    string // what to type instead
}

func (e usageError) Error() string { return e.message }

// Usage is an error of the command line; hint says what to type instead, "" for
// nothing.
func Usage(message, hint string) error { return usageError{message, hint} }

// failure is an error with what to do about it.
type failure struct {
	err  error
	hint string
}

func (f failure) Error() string { return f.err.Error() }
func (f failure) Unwrap() error { return f.err }

// Failure is an error with what to do about it.
func Failure(err error, hint string) error { return failure{err, hint} }

// Explain prints an error, with what to do about it, and gives its exit status.
func (s Streams) Explain(err error) int {
	if err == nil {
		return ExitOK
	}
	hint, code := "", ExitFailure
	if f, ok := errors.AsType[failure](err); ok {
		hint = f.hint
	}
	if u, ok := errors.AsType[usageError](err); ok {
		hint, code = u.hint, ExitUsage
	}
	s.fail(err, hint)
	return code
}
