package tls

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"millrace/lab/experiment/fileserver"
	"millrace/lab/subject"
	"millrace/lab/trial"
)

// The arms.
const (
	nginx      = "nginx"
	h2o        = "h2o"
	caddy      = "caddy"
	millrace   = "millrace"
	noLane     = "millrace-nolane"
	bareNet    = "nethttp"
	caddyAt    = "github.com/caddyserver/caddy/v2"
	pageName   = "index.html"
	configName = "config"
	// pageSubject is the program of bench/subjects that is the arm bareNet.
	pageSubject = "tlspage"
)

// servers are the arms of almost every row, the baseline first.
func servers() []string { return []string{nginx, h2o, caddy, millrace} }

// arms are all, the baseline first.
func (m *measurement) arms(ctx context.Context) []trial.Arm {
	bare := m.Subject(pageSubject, "", func(p fileserver.Place) []string {
		return []string{"-page", filepath.Join(p.Site, pageName), "-listen", p.Address, "-cert", beside(p, m.cert), "-key", beside(p, m.key)}
	})
	return []trial.Arm{
		m.Arm(nginx, "sendfile, open_file_cache, two workers, no log", m.secure(m.NginxWith(ctx, "tls.conf.tmpl", func(p fileserver.Place) map[string]string {
			return map[string]string{"Site": p.Site, "Address": p.Address, "Cert": m.cert, "Key": m.key}
		}))),
		m.Arm(h2o, "h2o, two threads, no log", m.secure(m.h2o(ctx))),
		m.Arm(caddy, "Caddy's file_server with its defaults, built from its Go module", m.secure(m.caddy())),
		m.Arm(millrace, "millrace serve, no log", m.secure(m.millrace())),
		m.Arm(noLane, "the same with --no-lane", m.secure(m.millrace("--no-lane"))),
		m.Arm(bareNet, "net/http with a handler that writes the page from memory", m.secure(bare)),
	}
}

// beside is a file of the folder that the site is in: the commands that a report
// shows name no temporary folder.
func beside(p fileserver.Place, file string) string {
	return filepath.Join(filepath.Dir(p.Site), filepath.Base(file))
}

// secure says that a server is asked over TLS.
func (m *measurement) secure(l fileserver.Launch) fileserver.Launch {
	l.URLs = func(p fileserver.Place) map[string]string { return map[string]string{"": "https://" + p.Address + "/"} }
	return l
}

// millrace is its command on the site; a socket stands for plain HTTP.
func (m *measurement) millrace(flags ...string) fileserver.Launch {
	return m.MillraceWith(func(p fileserver.Place) []string {
		return append([]string{
			"serve", p.Site, "-l", "unix:" + p.Socket, "--tls-listen", p.Address, "--tls-cert", beside(p, m.cert), "--tls-key", beside(p, m.key),
			"--log", "off", "--admin", "off",
		}, flags...)
	})
}

// errNoConfig is why a peer is not measured outside of a checkout.
var errNoConfig = errors.New("its config is in millrace's repository, bench/peers: run this in a checkout")

// h2o is Debian's, with its config.
func (m *measurement) h2o(ctx context.Context) fileserver.Launch {
	exe, err := subject.Look("h2o", "h2o")
	if err == nil && m.Env.Bench == nil {
		err = errNoConfig
	}
	if err != nil {
		return fileserver.Launch{Missing: err}
	}
	_, version, _ := strings.Cut(subject.Version(ctx, exe, "--version"), "version ")
	return fileserver.Launch{
		Exe: exe, Version: version,
		Args: func(p fileserver.Place) []string {
			return []string{"-m", "worker", "-c", filepath.Join(p.Dir, configName)}
		},
		Prepare: func(p fileserver.Place) error { return m.config(p, "h2o", "tls.conf.tmpl") },
	}
}

// caddy is built from bench/subjects/caddy.
func (m *measurement) caddy() fileserver.Launch {
	if m.quick {
		return fileserver.Launch{Missing: errQuick}
	}
	l := m.Subject(caddy, caddyAt, func(p fileserver.Place) []string {
		return []string{"run", "--adapter", "caddyfile", "--config", filepath.Join(p.Dir, configName)}
	})
	l.Prepare = func(p fileserver.Place) error { return m.config(p, "caddy", "Caddyfile.tmpl") }
	return l
}

// errQuick is why a peer is not measured in a quick run.
var errQuick = errors.New("a quick run has no time for it")

// config makes a peer's config from its template.
func (m *measurement) config(p fileserver.Place, peer, name string) error {
	host, port, err := net.SplitHostPort(p.Address)
	user := ""
	if os.Geteuid() == 0 {
		user = "root" // else its workers could not enter a private folder
	}
	if err != nil {
		return fmt.Errorf("writing the config of %s: %w", peer, err)
	}
	return subject.WriteConfig(filepath.Join(p.Dir, configName), filepath.Join(m.Env.Bench.Dir, "peers", peer, name), map[string]string{
		"Host": host, "Port": port, "Site": p.Site, "Dir": p.Dir, "Cert": m.cert, "Key": m.key, "User": user,
	})
}
