package servecmd

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"millrace/cmd/millrace/internal/console"
	"millrace/cmd/millrace/internal/remote"
)

// Reload is `millrace reload`.
type Reload struct {
	remote.Flags `embed:""`

	PID string `name:"pid" placeholder:"PID" help:"Where the server has no admin listener, send SIGHUP to this process instead, and do not wait."`
}

// Run has a running server read its config again.
func (c *Reload) Run(s console.Streams) error {
	at, status, text, err := order(c.Flags, "/reload")
	switch {
	case errors.Is(err, remote.ErrNoServer) && c.PID != "":
		return c.signal(s)
	case err != nil:
		return err
	case status == http.StatusOK:
		s.Say("The config was read again and is in use.\n")
		return nil
	case status == http.StatusUnauthorized:
		return remote.Unauthorized(at)
	}
	return errors.New(text)
}

func (c *Reload) signal(s console.Streams) error {
	pid, err := strconv.Atoi(c.PID)
	if err != nil || pid <= 1 {
		return console.Failure(fmt.Errorf("%q is no process", c.PID), "give --pid the number of one that serves")
	}
	if err := hangUp(pid); err != nil {
		return fmt.Errorf("asking process %d to read its config again: %w", pid, err)
	}
	s.Say("Process %d was asked to read its config again. Its log says whether it could.\n", pid)
	return nil
}
