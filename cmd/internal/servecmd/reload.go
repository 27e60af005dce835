package servecmd

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"reflect"

	"github.com/alecthomas/kong"

	"millrace/cmd/internal/cli"
)

// Reload is `millrace reload`.
type Reload struct {
	cli.Flags `embed:""`
}

// Run has a running server read its config again. One without an admin listener
// that --pid names gets a signal.
func (c *Reload) Run(ctx *kong.Context, s cli.Streams) error {
	at, status, text, err := order(c.Flags, s, "/reload", "read its config again")
	switch {
	case errors.Is(err, cli.ErrNoListener):
		return c.signal(ctx.Model, s, err)
	case err != nil:
		return err
	case status == http.StatusOK:
		s.Print("The config was read again and is in use.\n")
		return nil
	case status == http.StatusUnauthorized:
		return cli.Unauthorized(at)
	}
	return errors.New(text)
}

// signal sends SIGHUP to a process that serves; any other would end by it.
func (c *Reload) signal(program *kong.Application, s cli.Streams, unheard error) error {
	pid := int(c.PID)
	p, err := os.FindProcess(pid) // from here on the number is not another's
	if err != nil {
		return fmt.Errorf("asking process %d to read its config again: %w", pid, err)
	}
	defer func() { _ = p.Release() }() // it is not ours to wait for
	if err := cli.IsMillrace(pid); err != nil {
		return cli.Failure(err, "")
	}
	typed, err := cli.TypedArgs(pid)
	if err != nil {
		return err
	}
	if !servesBy(program, typed) {
		return unheard
	}
	if err := hangUp(p); err != nil {
		return fmt.Errorf("asking process %d to read its config again: %w", pid, err)
	}
	s.Print("Process %d was asked to read its config again. Its log says whether it could.\n", pid)
	return nil
}

// servesBy reports whether a process with such a command line serves.
func servesBy(program *kong.Application, args []string) bool {
	model, err := cli.New(program.Name, program.Help, reflect.New(program.Target.Type()).Interface())
	if err != nil {
		return false
	}
	ctx, alone, err := cli.Parse(model, args)
	return err == nil && alone == nil && Serves(ctx)
}
