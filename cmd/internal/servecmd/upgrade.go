package servecmd

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"millrace/cmd/internal/cli"
	"millrace/internal/engine"
	"millrace/internal/ops/admin"
	"millrace/internal/process/handover"
)

// Upgrade is `millrace upgrade`.
type Upgrade struct {
	cli.Flags `embed:""`
}

// Run has a running server start its program anew.
func (c *Upgrade) Run(s cli.Streams) error {
	at, status, text, err := order(c.Flags, s, "/upgrade", "start its program anew")
	switch {
	case err != nil:
		return err
	case status == http.StatusOK:
		s.Print("The new process serves. The old one finishes what is under way, for at most limits.upgrade_timeout.\n")
		return nil
	case status == http.StatusNotFound, status == http.StatusNotImplemented:
		return cli.Failure(fmt.Errorf("the server at %s cannot be upgraded in place", at), "restart it")
	case status == http.StatusUnauthorized:
		return cli.Unauthorized(at)
	}
	return errors.New("not upgraded; the process that served still does: " + text)
}

// order has the server that the flags mean do what a path stands for, and says which it
// waits for. text is its answer.
func order(where cli.Flags, s cli.Streams, path, what string) (at string, status int, text string, err error) {
	ctx, stop := cli.UntilInterrupted()
	defer stop()
	r, err := where.FindAny(ctx)
	if err != nil {
		return "", 0, "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.Base+path, http.NoBody)
	if err != nil {
		return "", 0, "", fmt.Errorf("asking the server: %w", err)
	}
	s.Print("Waiting for %s to %s.\n", r.Name(), what)
	resp, err := r.HTTP.Do(req)
	if err != nil {
		return "", 0, "", fmt.Errorf("asking the server at %s: %w", r.At, err)
	}
	defer resp.Body.Close()
	const most = 1 << 16 // an error has a few lines
	output, _ := io.ReadAll(io.LimitReader(resp.Body, most))
	return r.At, resp.StatusCode, strings.TrimSpace(string(output)), nil
}

const (
	// preparing and starting are how long a successor may take to understand its
	// config, and then to serve: together less than an answer of the admin
	// listener may take.
	preparing = 15 * time.Second
	starting  = 40 * time.Second
)

// upgrader starts this program anew.
type upgrader struct {
	program string // as it was called; a newer one may be there by now
	missing error  // why it is not known
	from    *handover.Predecessor
	box     *sandbox
	streams cli.Streams
	srv     *engine.Server
	service *service
	handed  chan int    // the successor's number, once it serves
	config  *sync.Mutex // held by a reload, which must not come in between
	done    bool
}

// newUpgrader finds the program that runs, before anybody puts another one there.
func newUpgrader(from *handover.Predecessor, box *sandbox, s cli.Streams, service *service) *upgrader {
	u := &upgrader{from: from, box: box, streams: s, service: service, handed: make(chan int, 1), config: new(sync.Mutex)}
	u.program, u.missing = calledAs()
	return u
}

// calledAs is the program by the name that it was called by.
func calledAs() (string, error) {
	program, err := exec.LookPath(os.Args[0])
	if err == nil {
		program, err = filepath.Abs(program)
	}
	return program, err //nolint:wrapcheck // who calls it says what was done
}

// run starts the program, and returns when that has taken over, or why it has
// not: then this process goes on as if nothing had happened.
func (u *upgrader) run() error {
	u.config.Lock()
	defer u.config.Unlock()
	switch {
	case u.missing != nil:
		return fmt.Errorf("finding the program that runs: %w", u.missing)
	case os.Getpid() == 1:
		return fmt.Errorf("%w: this is the first process of a container, which ends with it: start a new container instead", admin.ErrNotNow)
	case u.done:
		return fmt.Errorf("%w: another process has taken over already", admin.ErrNotNow)
	}
	select {
	case <-u.from.Gone():
	default:
		return fmt.Errorf("%w: the process before this one still finishes what is under way (limits.upgrade_timeout): try again later, or end it", admin.ErrNotNow)
	}
	starter, err := u.box.starter(u.program)
	if err != nil {
		return fmt.Errorf("%w: %w", admin.ErrNotNow, err)
	}
	u.streams.Log(slog.LevelInfo, "starting "+u.program+" anew")
	n, err := u.start(starter)
	if err != nil {
		u.streams.Log(slog.LevelError, fmt.Sprintf("not upgraded; this process goes on: %v", err))
		return err
	}
	u.done = true
	u.service.setMainPID(n.Pid())
	u.handed <- n.Pid()
	return nil
}

func (u *upgrader) start(by handover.Starter) (n *handover.Successor, err error) {
	sockets, err := u.srv.Sockets()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			u.srv.TakeSocketsBack()
		}
	}()
	u.srv.Cool()
	n, err = handover.Start(by, sockets)
	sockets.Close()
	if err != nil {
		return nil, err
	}
	if err := n.Prepared(preparing); err != nil {
		n.Kill()
		return nil, err
	}
	err = n.Go(u.srv.FreeFolders(n))
	if err == nil {
		err = n.Ready(starting)
	}
	if err != nil {
		n.Kill()
		return nil, errors.Join(err, u.srv.TakeFoldersBack())
	}
	return n, nil
}
