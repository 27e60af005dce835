package cli

// This file finds the servers that run on this machine and asks their admin
// listeners.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"millrace/internal/config"
	"millrace/internal/ops/admin"
)

// maxList is more than the list of any server's addresses or routes has, in
// bytes.
const maxList = 1 << 20

// ErrNoServer is returned where none was named, and none is found.
var ErrNoServer = errors.New("no running server was found")

// AdminAddress is an address, or off.
type AdminAddress string

// UnmarshalText implements [encoding.TextUnmarshaler].
func (a *AdminAddress) UnmarshalText(text []byte) error {
	*a = AdminAddress(text)
	if *a == config.Off {
		return nil
	}
	return config.CheckAddress(string(text))
}

// Flags are those of the verbs that talk to a running server.
type Flags struct {
	Admin AdminAddress `placeholder:"ADDR" env:"MILLRACE_ADMIN" help:"Which server: where its admin listener is, as its banner says. Default: the one that runs; of several, the one at whose address a URL on the command line is."`
	PID   PID          `name:"pid" placeholder:"PID" help:"Which server: the one that is this process."`
}

// Server is a running server's admin listener.
type Server struct {
	At   string // the listener's address
	Base string // the URL of its root
	HTTP *http.Client
}

// Name says which server it is: by its process, where the name of its socket tells.
func (r *Server) Name() string {
	name, ok := strings.CutSuffix(r.At, ".sock")
	if pid, err := strconv.Atoi(name[strings.LastIndexByte(name, '/')+1:]); ok && err == nil {
		return fmt.Sprintf("process %d", pid)
	}
	return "the server at " + r.At
}

// newServer takes an admin listener's address.
func newServer(at string) (*Server, error) {
	client, base, err := admin.Client(at)
	if err != nil {
		return nil, err
	}
	if token := os.Getenv(TokenVariable); token != "" {
		client.Transport = bearer{token, client.Transport}
	}
	return &Server{at, base, client}, nil
}

// TokenVariable has the token of an admin listener that asks for one.
const TokenVariable = "MILLRACE_ADMIN_TOKEN"

// Unauthorized says that a server asks for its token.
func Unauthorized(at string) error {
	return Failure(fmt.Errorf("the server at %s asks for its token", at), "set "+TokenVariable+" to its admin.token")
}

// bearer sends the token with each request.
type bearer struct {
	token string
	next  http.RoundTripper
}

// RoundTrip implements [http.RoundTripper].
func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.next.RoundTrip(r) //nolint:wrapcheck // the client wraps it
}

// Choices lists servers with what they serve, one on a line.
func Choices(ctx context.Context, found []string) string {
	var b strings.Builder
	for _, at := range found {
		b.WriteString("\n    --admin " + at)
		r, err := newServer(at)
		if err != nil {
			continue
		}
		if pid := r.process(ctx); pid != 0 {
			fmt.Fprintf(&b, " (process %d)", pid)
		}
		if addrs, err := r.Addrs(ctx); err == nil {
			b.WriteString("  " + strings.Join(URLs(addrs), " "))
		}
	}
	return b.String()
}

// Addrs are the URLs under which the server's site is.
func (r *Server) Addrs(ctx context.Context) (list []string, err error) {
	return list, r.List(ctx, "/addrs", "addresses", &list)
}

// List asks the admin listener for what it has under a path, and puts it into.
func (r *Server) List(ctx context.Context, path, what string, into any) error {
	return r.ask(ctx, http.MethodGet, path, what, into)
}

// Post has the server do what a path stands for.
func (r *Server) Post(ctx context.Context, path, what string, into any) error {
	return r.ask(ctx, http.MethodPost, path, what, into)
}

func (r *Server) ask(ctx context.Context, method, path, what string, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, r.Base+path, nil)
	if err != nil {
		return fmt.Errorf("asking the server: %w", err)
	}
	client := *r.HTTP
	client.CheckRedirect = nil // to the same path with a slash behind it
	resp, err := client.Do(req)
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // the socket's made-up URL helps nobody
		}
		return fmt.Errorf("asking the server: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusUnauthorized {
		return Unauthorized(r.At)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("asking the server at %s for its %s: it says %s", r.At, what, resp.Status)
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxList)).Decode(into); err != nil {
		return fmt.Errorf("reading the server's %s: %w", what, err)
	}
	return nil
}

// URLs is where the site is: http, https, then sockets as --listen has them.
func URLs(addrs []string) []string {
	out := slices.Clone(addrs)
	for i, a := range out {
		if scheme, socket, ok := strings.Cut(a, "+unix:"); ok {
			out[i] = "unix:" + socket
			if scheme == "https" {
				out[i] += " (HTTPS)"
			}
		}
	}
	slices.Sort(out)
	return out
}
