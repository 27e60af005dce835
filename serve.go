package millrace

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"

	"millrace/internal/lane"
	"millrace/internal/observe/meter"
	"millrace/internal/observe/redact"
	"millrace/internal/route/site"
	"millrace/internal/server"
)

// inherited are the sockets of systemd. They stay open: the number of one that the
// garbage collector closes would soon be somebody else's.
var inherited = sync.OnceValues(func() ([]*os.File, error) { return server.Inherited(os.Getenv) })

// Listen opens an address for [Serve] or [Config].Listeners: host:port, :port for
// every interface, or unix:/path. 0.0.0.0 is IPv4 alone, [::] IPv6 alone. Where systemd has opened it for the program (a
// socket unit), it is that socket. Other listeners do as well; this one leaves out
// the probes of idle connections, which the server's own timeouts make needless.
func Listen(addr string) (net.Listener, error) {
	sockets, err := inherited()
	if err != nil {
		return nil, err
	}
	return server.Listen(sockets, addr)
}

// Serve answers the connections of ln by h, for every host and path, until ln is
// closed; then it lets running requests end, and returns nil. It takes the place
// of [http.Serve]: simple requests skip net/http's parser and its goroutines, and
// clients that are slow or too many are kept at bay as [Config] says.
//
// What h does not declare [Public] is asked of h each time. ln must not speak TLS:
// for that, and for everything else, there is [New].
func Serve(ln net.Listener, h http.Handler) error {
	// Without package engine: a program that calls nothing else has no codecs,
	// brokers and certificates linked in.
	ctx, end := context.WithCancel(context.Background())
	defer end()
	m := meter.New()
	route := &site.Route{Pattern: "/", Handler: h, Job: m.Job("handler"), RawPath: true, Foreign: true}
	setup := server.Setup{Listeners: []net.Listener{&watched{Listener: ln, closed: end}}, Plain: site.NewTable(), Secure: site.NewTable()}
	setup.Plain.Add(site.New(1, []*site.Route{route}), nil)
	s, err := server.New(setup, lane.Options{}, m, slog.New(redact.Handler(slog.Default().Handler())))
	if err != nil {
		return err
	}
	return s.Run(ctx)
}

// watched is a listener that tells when it ends.
type watched struct {
	net.Listener
	closed func()
}

// Accept implements [net.Listener].
func (l *watched) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	var passing interface{ Temporary() bool }
	if err != nil && (!errors.As(err, &passing) || !passing.Temporary()) { // as net/http has it
		l.closed()
	}
	return nc, err //nolint:wrapcheck // the server looks at it
}

// Public lets the fast lane give the answers of h that it can (those of this
// module's packages static, images and cache) to everybody, without asking h or
// what is around h again. By it the program says that neither who asks, nor any
// header but those that these packages name in Vary, has a say in the answer: no
// password, no limit by address stands before h. Middleware does not see what the
// fast lane answers.
//
// An answer to which something around h has added a header, or that was
// compressed there, is never taken.
func Public(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lane.Public(r)
		h.ServeHTTP(w, r)
	})
}
