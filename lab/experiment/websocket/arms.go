package websocket

import (
	"context"
	"errors"

	experiment "millrace/lab/experiment/former"
	"millrace/lab/record"
	"millrace/lab/trial"
)

// The arms: a program, and what it does where that is not a plain echo.
const (
	gws      = "gws"
	millrace = "millrace"

	overTLS  = "-tls"
	channels = "-channels"
	proxy    = "-proxy"
)

// publish is where an instance takes publications, among its URLs.
const publish = "publish"

func echoArms() []string { return []string{gws, millrace, "coder", "gorilla"} }

// peers are the servers of lab/bench/subjects/websocket: the library's name, which is the
// arm's, and its module.
func peers() [][2]string {
	return [][2]string{
		{gws, "github.com/lxzan/gws"},
		{"coder", "github.com/coder/websocket"},
		{"gorilla", "github.com/gorilla/websocket"},
	}
}

// arms are all, the baseline first.
func (m *measurement) arms(ctx context.Context, mode record.Mode) []trial.Arm {
	arms := []trial.Arm{
		m.Arm(gws, "an echo over gws as its manual shows, default options", m.peer(peers()[0], "ws", "/echo")),
		m.Arm(millrace, "millrace ws, its echo, no log", m.millrace("/echo")),
		m.Arm(millrace+channels, "millrace ws --channels", m.millrace("/ws", "--channels")),
		m.Arm(gws+channels, "what is posted is sent to all: gws", m.peer(peers()[0], "ws", "/ws", "-broadcast")),
	}
	if mode != record.Full { // a quick run has no time for more
		return arms
	}
	for _, p := range peers()[1:] {
		arms = append(arms,
			m.Arm(p[0], "an echo over "+p[0]+"/websocket as its manual shows, default options", m.peer(p, "ws", "/echo")),
			m.Arm(p[0]+channels, "what is posted is sent to all: "+p[0], m.peer(p, "ws", "/ws", "-broadcast")))
	}
	return append(
		arms,
		m.Arm(gws+overTLS, "the echo over gws over TLS", m.peer(peers()[0], "wss", "/echo", "-cert", m.cert, "-key", m.key)),
		m.Arm(millrace+overTLS, "millrace ws over TLS", m.millraceTLS()),
		m.Arm("nginx"+proxy, "nginx in front of an echo, as its documentation says", m.passedOn(m.nginx(ctx))),
		m.Arm(millrace+proxy, "millrace ws proxy in front of the same echo", m.passedOn(m.millrace("/echo", "proxy", "ws://"+m.upstream))),
	)
}

// urls are those of a server: its WebSocket, and where it takes publications.
func urls(scheme, path string) func(experiment.Place) map[string]string {
	return func(p experiment.Place) map[string]string {
		return map[string]string{"": scheme + "://" + p.Address + path, publish: "http://" + p.Address + "/publish?channel=" + channel}
	}
}

// peer is a server of lab/bench/subjects/websocket.
func (m *measurement) peer(what [2]string, scheme, path string, flags ...string) experiment.Launch {
	l := m.Subject("websocket", what[1], func(p experiment.Place) []string {
		return append([]string{"-library", what[0], "-listen", p.Address}, flags...)
	})
	l.URLs = urls(scheme, path)
	return l
}

// millrace is its command with WebSockets.
func (m *measurement) millrace(path string, flags ...string) experiment.Launch {
	return m.started(urls("ws", path), func(p experiment.Place) []string {
		return append(append([]string{"ws"}, flags...), "--listen", p.Address, "--log", "off", "--admin", "off")
	})
}

func (m *measurement) millraceTLS() experiment.Launch {
	return m.started(urls("wss", "/echo"), func(p experiment.Place) []string {
		return []string{
			"ws", "--listen", "unix:" + p.Socket, "--tls-listen", p.Address, "--tls-cert", m.cert, "--tls-key", m.key,
			"--log", "off", "--admin", "off",
		}
	})
}

func (m *measurement) started(at func(experiment.Place) map[string]string, args func(experiment.Place) []string) experiment.Launch {
	l := m.MillraceWith(args)
	l.URLs = at
	return l
}

// nginx passes WebSockets on.
func (m *measurement) nginx(ctx context.Context) experiment.Launch {
	l := m.NginxWith(ctx, "ws.conf.tmpl", func(p experiment.Place) map[string]string {
		return map[string]string{"Address": p.Address, "Upstream": m.upstream}
	})
	l.URLs = urls("ws", "/echo")
	return l
}

// errNoUpstream is why nothing is passed on.
var errNoUpstream = errors.New("there is no executable of millrace, whose echo would stand behind it")

// passedOn is a proxy, where there is something behind it.
func (m *measurement) passedOn(l experiment.Launch) experiment.Launch {
	if m.upstream == "" && l.Missing == nil {
		return experiment.Launch{Missing: errNoUpstream}
	}
	return l
}
