package tls

import (
	"context"
	"errors"
	"path/filepath"
	"strings"

	"millrace/lab/experiment"
	"millrace/lab/subject"
	"millrace/lab/trial"
)

// The arms.
const (
	nginx    = "nginx"
	h2o      = "h2o"
	caddy    = experiment.CaddySubject
	millrace = "millrace"
	// caddyH3 and millraceH3 serve HTTP/3 as well.
	caddyH3    = "caddy-http3"
	millraceH3 = "millrace-http3"
	noLane     = "millrace-nolane"
	bareNet    = "nethttp"
	pageName   = "index.html"
)

// servers are the arms of almost every row, the baseline first.
func servers() []string { return []string{nginx, h2o, caddy, millrace} }

// arms are all, the baseline first.
func (m *measurement) arms(ctx context.Context) []trial.Arm {
	bare := m.Subject(bareNet, "", func(p experiment.Place) []string {
		return []string{"-server", "page", "-page", filepath.Join(p.Site, pageName), "-listen", p.Address, "-cert", beside(p, m.cert), "-key", beside(p, m.key)}
	})
	return []trial.Arm{
		m.Arm(nginx, "sendfile, open_file_cache, two workers, no log", m.secure(m.NginxWith(ctx, "tls.conf.tmpl", func(p experiment.Place) map[string]string {
			return map[string]string{"Site": p.Site, "Address": p.Address, "Cert": m.cert, "Key": m.key}
		}))),
		m.Arm(h2o, "h2o, two threads, no log", m.secure(m.h2o(ctx))),
		m.Arm(caddy, "Caddy's file_server with its defaults, built from its Go module", m.secure(m.caddy("h1 h2"))),
		m.Arm(caddyH3, "the same with HTTP/3, as it is by default", m.secure(m.caddy("h1 h2 h3"))),
		m.Arm(millrace, "millrace serve, no log", m.secure(m.millrace())),
		m.Arm(millraceH3, "the same with HTTP/3, by a config", m.secure(m.millraceHTTP3())),
		m.Arm(noLane, "the same with --no-lane", m.secure(m.millrace("--no-lane"))),
		m.Arm(bareNet, "net/http with a handler that writes the page from memory", m.secure(bare)),
	}
}

// beside is a file of the folder that the site is in: the commands that a report
// shows name no temporary folder.
func beside(p experiment.Place, file string) string {
	return filepath.Join(filepath.Dir(p.Site), filepath.Base(file))
}

// secure says that a server is asked over TLS.
func (m *measurement) secure(l experiment.Launch) experiment.Launch {
	l.URLs = func(p experiment.Place) map[string]string { return map[string]string{"": "https://" + p.Address + "/"} }
	return l
}

// millrace is its command on the site; a socket stands for plain HTTP.
func (m *measurement) millrace(flags ...string) experiment.Launch {
	return m.MillraceWith(func(p experiment.Place) []string {
		return append([]string{
			"serve", p.Site, "-l", "unix:" + p.Socket, "--tls-listen", p.Address, "--tls-cert", beside(p, m.cert), "--tls-key", beside(p, m.key),
			"--log", "off", "--admin", "off",
		}, flags...)
	})
}

// millraceHTTP3 is the same by a config, as no flag says http3.
func (m *measurement) millraceHTTP3() experiment.Launch {
	return m.With(m.MillraceWith(func(p experiment.Place) []string {
		return []string{"serve", "--config", experiment.ConfigFile(p), "--log", "off", "--admin", "off"}
	}), m.peer(millrace, "tls.yaml.tmpl", ""))
}

// peer is a config of lab/bench/peers with the certificate.
func (m *measurement) peer(name, template, protocols string) experiment.Config {
	return experiment.Config{Peer: name, Template: template, Fields: func(experiment.Place) map[string]string {
		return map[string]string{"Cert": m.cert, "Key": m.key, "Protocols": protocols}
	}}
}

// h2o is Debian's, with its config.
func (m *measurement) h2o(ctx context.Context) experiment.Launch {
	exe, err := subject.Look("h2o", "h2o")
	if err != nil {
		return experiment.Launch{Missing: err}
	}
	_, version, _ := strings.Cut(subject.Version(ctx, exe, "--version"), "version ")
	return m.With(experiment.Launch{
		Exe: exe, Version: version,
		Args: func(p experiment.Place) []string { return []string{"-m", "worker", "-c", experiment.ConfigFile(p)} },
	}, m.peer(h2o, "tls.conf.tmpl", ""))
}

// caddy is built from lab/bench/subjects/caddy.
func (m *measurement) caddy(protocols string) experiment.Launch {
	if m.quick {
		return experiment.Launch{Missing: errQuick}
	}
	return m.Caddy(m.peer(caddy, "Caddyfile.tmpl", protocols))
}

// errQuick is why a peer is not measured in a quick run.
var errQuick = errors.New("a quick run has no time for it")
