package compare

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Server is a server that runs by its own config, on loopback ports, with its
// logs and temporary files in a folder of its own.
type Server struct {
	Name  string // as people know it
	Sites []Site // Ours is empty

	dir    string
	cmd    *exec.Cmd
	stderr *bytes.Buffer
	done   chan struct{} // closed when it has ended
}

// folder makes the folder of a server that is about to start.
func folder(name string) (*Server, error) {
	dir, err := os.MkdirTemp("", "millrace-compare-")
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	return &Server{Name: name, dir: dir, stderr: &bytes.Buffer{}, done: make(chan struct{})}, nil
}

// start runs it, and waits until all of its addresses answer.
func (s *Server) start(ctx context.Context, binary string, args, env []string) error {
	s.cmd = exec.Command(binary, args...) //nolint:gosec // the operator names it
	s.cmd.Stderr = s.stderr
	s.cmd.Env = append(os.Environ(), env...)
	if err := s.cmd.Start(); err != nil {
		return errors.Join(fmt.Errorf("starting %s: %w", s.Name, err), os.RemoveAll(s.dir))
	}
	go func() { // Stop waits for it
		_ = s.cmd.Wait() // what it says is in its messages
		close(s.done)
	}()
	if err := s.wait(ctx); err != nil {
		return errors.Join(err, s.Stop())
	}
	return nil
}

// wait returns when all addresses answer.
func (s *Server) wait(ctx context.Context) error {
	const longest = 20 * time.Second
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	for _, site := range s.Sites {
		for {
			c, err := (&net.Dialer{}).DialContext(ctx, "tcp", site.Theirs)
			if err == nil {
				_ = c.Close()
				break
			}
			select {
			case <-s.done:
				return fmt.Errorf("%s ended: %s", s.Name, s.messages())
			case <-ctx.Done():
				return fmt.Errorf("%s does not answer at %s: %s", s.Name, site.Theirs, s.messages())
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	return nil
}

// messages are what it has said.
func (s *Server) messages() string {
	text, _ := os.ReadFile(filepath.Join(s.dir, "error.log")) // there may be none
	return strings.TrimSpace(strings.TrimSpace(s.stderr.String()) + "\n" + string(text))
}

// Stop ends it and removes its folder.
func (s *Server) Stop() error {
	const timeout = 10 * time.Second
	err := s.cmd.Process.Signal(syscall.SIGTERM)
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	select {
	case <-s.done:
	case <-time.After(timeout):
		err = errors.Join(err, s.cmd.Process.Kill())
		<-s.done
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

// ports gives loopback addresses to those of a config: the same one for the same.
type ports struct {
	addresses map[string]string
	held      []net.Listener // until all are found, so that none comes twice
}

func (p *ports) address(key string) (string, error) {
	if to := p.addresses[key]; to != "" {
		return to, nil
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("looking for a free port: %w", err)
	}
	if p.addresses == nil {
		p.addresses = map[string]string{}
	}
	p.held = append(p.held, l)
	p.addresses[key] = l.Addr().String()
	return p.addresses[key], nil
}

// free lets the server take the ports.
func (p *ports) free() {
	for _, l := range p.held {
		_ = l.Close() // nothing was sent through it
	}
}
