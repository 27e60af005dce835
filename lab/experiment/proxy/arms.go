package proxy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"millrace/lab/experiment"
	"millrace/lab/subject"
	"millrace/lab/trial"
)

// The arms.
const (
	nginx    = "nginx"
	haproxy  = "haproxy"
	caddy    = experiment.CaddySubject
	millrace = "millrace"
	// gws and sockets answer WebSockets themselves.
	gws     = "gws"
	sockets = "millrace-ws"
)

// The programs of lab/bench/subjects that the proxies forward to. The echo is the arm gws as
// well.
const (
	appSubject  = "upstream"
	echoSubject = "websocket"
)

// echoArgs are those of the echo.
func echoArgs(address string) []string { return []string{"-library", "gws", "-listen", address} }

// echoPath is where the echo is.
const echoPath = "/echo"

// secure is where an instance listens for HTTPS, among its URLs.
const secure = "secure"

// proxies are the arms of almost every row, the baseline first.
func proxies() []string { return []string{nginx, haproxy, caddy, millrace} }

// arms are all, the baseline first.
func (m *measurement) arms(ctx context.Context) []trial.Arm {
	direct := m.MillraceWith(func(p experiment.Place) []string {
		return []string{"ws", "--listen", p.Address, "--log", "off", "--admin", "off"}
	})
	peer := m.Subject(echoSubject, "github.com/lxzan/gws", func(p experiment.Place) []string { return echoArgs(p.Address) })
	return []trial.Arm{
		m.Arm(nginx, "two workers, connections to the upstream kept, no log", m.urls(m.nginx(ctx))),
		m.Arm(haproxy, "two threads, connections to the upstream kept, no log", m.urls(m.haproxy(ctx))),
		m.Arm(caddy, "Caddy's reverse_proxy with connections kept, built from its Go module", m.urls(m.caddy())),
		m.Arm(millrace, "millrace serve with proxy, cache and websocket routes, no log", m.urls(m.millrace())),
		m.Arm(gws, "an echo over gws as its manual shows, default options, without a proxy", peer),
		m.Arm(sockets, "millrace ws, its echo, without a proxy", direct),
	}
}

// urls says that a server listens for HTTPS at its second address.
func (m *measurement) urls(l experiment.Launch) experiment.Launch {
	l.URLs = func(p experiment.Place) map[string]string {
		return map[string]string{secure: "https://" + p.Second + "/"}
	}
	return l
}

// fields are those of every proxy's template.
func (m *measurement) fields(experiment.Place) map[string]string {
	return m.withPHP(map[string]string{"Upstream": m.app, "Echo": m.echo, "Cert": m.cert, "Key": m.key})
}

func (m *measurement) config(peer, template string) experiment.Config {
	return experiment.Config{Peer: peer, Template: template, Fields: m.fields}
}

func (m *measurement) nginx(ctx context.Context) experiment.Launch {
	l := m.NginxWith(ctx, "proxy.conf.tmpl", func(p experiment.Place) map[string]string {
		fields := m.fields(p)
		fields["Address"], fields["Second"], fields["Memory"] = p.Address, p.Second, p.Memory
		return fields
	})
	l.Memory = true
	return l
}

// haproxy is Debian's, with its config.
func (m *measurement) haproxy(ctx context.Context) experiment.Launch {
	exe, err := subject.Look("haproxy", "haproxy")
	if err != nil {
		return experiment.Launch{Missing: err}
	}
	l := m.With(experiment.Launch{
		Exe: exe, Version: subject.Version(ctx, exe, "-v"),
		Args: func(p experiment.Place) []string { return []string{"-db", "-f", experiment.ConfigFile(p)} },
	}, m.config(haproxy, "proxy.cfg.tmpl"))
	write := l.Prepare
	l.Prepare = func(p experiment.Place) error {
		if err := m.both(filepath.Join(p.Dir, "both.pem")); err != nil {
			return err
		}
		return write(p)
	}
	return l
}

// both writes certificate and key into one file, as HAProxy wants them.
func (m *measurement) both(name string) error {
	cert, err := os.ReadFile(m.cert)
	key, keyErr := os.ReadFile(m.key)
	if err = errors.Join(err, keyErr); err == nil {
		err = os.WriteFile(name, append(cert, key...), 0o600)
	}
	if err != nil {
		return fmt.Errorf("writing HAProxy's certificate: %w", err)
	}
	return nil
}

// caddy is built from lab/bench/subjects/caddy.
func (m *measurement) caddy() experiment.Launch {
	if m.quick {
		return experiment.Launch{Missing: errQuick}
	}
	return m.Caddy(m.config(caddy, "proxy.Caddyfile.tmpl"))
}

// errQuick is why a peer is not measured in a quick run.
var errQuick = errors.New("a quick run has no time for it")

func (m *measurement) millrace() experiment.Launch {
	return m.With(m.MillraceWith(func(p experiment.Place) []string {
		return []string{"serve", "--config", experiment.ConfigFile(p)}
	}), m.config(millrace, "proxy.yaml.tmpl"))
}
