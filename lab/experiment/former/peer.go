package former

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"

	"millrace/lab/record"
	"millrace/lab/subject"
	"millrace/lab/trial"
)

// CaddySubject is the program of lab/bench/subjects that is Caddy.
const CaddySubject = "caddy"

// errNoConfig is why a peer is not measured outside of a checkout.
var errNoConfig = errors.New("its config is in millrace's repository, lab/bench/peers: run this in a checkout")

// A Config is a template of lab/bench/peers, and its fields at a place. It has Host,
// Port and SecondPort of the place's addresses, Site, Dir, Socket, and User (of the
// workers; empty: as the server is started) beside those that are given.
type Config struct {
	Peer, Template string // the folder, and the file in it
	Fields         func(Place) map[string]string
}

// ConfigFile is where a place's config is.
func ConfigFile(p Place) string { return filepath.Join(p.Dir, "config") }

// WriteConfig makes a config at a place.
func (s *Servers) WriteConfig(p Place, c Config) error {
	host, port, err := net.SplitHostPort(p.Address)
	_, second, secondErr := net.SplitHostPort(p.Second)
	if err := errors.Join(err, secondErr); err != nil {
		return fmt.Errorf("writing the config of %s: %w", c.Peer, err)
	}
	user := ""
	if os.Geteuid() == 0 {
		user = "root" // else its workers could not enter a private folder
	}
	fields := map[string]string{"Host": host, "Port": port, "SecondPort": second, "Site": p.Site, "Dir": p.Dir, "Socket": p.Socket, "User": user}
	maps.Copy(fields, c.Fields(p))
	return subject.WriteConfig(ConfigFile(p), filepath.Join(s.Env.Bench.Dir, "peers", c.Peer, c.Template), fields)
}

// With gives a server a config.
func (s *Servers) With(l Launch, c Config) Launch {
	if l.Missing == nil && s.Env.Bench == nil {
		return Launch{Missing: errNoConfig}
	}
	l.Prepare = func(p Place) error { return s.WriteConfig(p, c) }
	return l
}

// Caddy starts Caddy, which is built from lab/bench/subjects, with a config.
func (s *Servers) Caddy(c Config) Launch {
	return s.With(s.Subject(CaddySubject, "github.com/caddyserver/caddy/v2", func(p Place) []string {
		return []string{"run", "--adapter", "caddyfile", "--config", ConfigFile(p)}
	}), c)
}

// Alone starts a server of an arm that has done nothing before, and stops it when
// do has returned.
func (s *Servers) Alone(ctx context.Context, arm string, do func(in *trial.Instance, target *record.Target) error) (err error) {
	in, err := s.Start(ctx, arm, exec.Command)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Stop()) }()
	target, err := record.Open(in.PIDs...)
	if err != nil {
		return err
	}
	defer target.Close() //nolint:errcheck // only read from: nothing is lost
	return do(in, target)
}
