// Package explaincmd has the verb that says what answers a request by a config.
package explaincmd

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"millrace/cmd/internal/cli"
	"millrace/internal/config"
	"millrace/internal/engine"
)

// Explain is `millrace explain`.
type Explain struct {
	URL     string   `arg:"" help:"What would be asked for. A path alone is one of the first site."`
	Config  string   `short:"c" placeholder:"FILE" complete:"file" env:"MILLRACE_CONFIG" help:"The config. Default millrace.yaml."`
	Method  string   `short:"X" default:"GET" placeholder:"METHOD" help:"How it would be asked for. Default GET."`
	Header  []string `short:"H" sep:"none" placeholder:"HEADER" help:"A header that the request would have, as in 'Cookie: beta=on'. May be repeated."`
	Address string   `default:"127.0.0.1" placeholder:"ADDR" help:"The address that it would come from. Default 127.0.0.1."`
	JSON    bool     `name:"json" help:"Print it as JSON."`
	Live    bool     `help:"Ask the running server what the config does not say: whether its sites are closed for maintenance."`

	cli.Flags `embed:""`
}

// Examples end the help of the verb.
func Examples() cli.Examples {
	return cli.Examples{
		"explain": {
			"millrace explain /blog/12                       # of ./millrace.yaml",
			"millrace explain https://example.org/ -c site.yaml -H 'Cookie: beta=on'",
			"millrace explain /admin/ -X POST --address 203.0.113.7",
			"millrace explain / --live                       # and what the running server has been told",
		},
	}
}

// Run reads the config and looks at files. Without --live no server is asked, and
// none has to run.
func (c *Explain) Run(s cli.Streams) error {
	file := cmp.Or(c.Config, config.FileName)
	cfg, err := config.Load(file)
	if err != nil {
		return cli.BadConfig(file, err)
	}
	r, err := c.request(cfg)
	if err != nil {
		return err
	}
	if c.Live {
		if err := c.state(cfg); err != nil {
			return err
		}
	}
	e, err := engine.Explain(cfg, r)
	if err != nil {
		return fmt.Errorf("explaining %s: %w", c.URL, err)
	}
	if c.JSON {
		return s.WriteJSON(e)
	}
	return write(s.Out, e)
}

// state takes over what the running server has been told.
func (c *Explain) state(cfg *config.Config) error {
	ctx, stop := cli.UntilInterrupted()
	defer stop()
	server, err := c.Find(ctx, func(context.Context, *cli.Server) bool { return true })
	if errors.Is(err, cli.ErrNoServer) {
		return cli.Failure(cli.ErrNoServer, "without --live the config alone is looked at")
	}
	if err != nil {
		return err //nolint:wrapcheck // says what to do
	}
	var now engine.Maintenance
	if err := server.List(ctx, engine.MaintenancePath, "maintenance", &now); err != nil {
		return err //nolint:wrapcheck // says what it asked
	}
	cfg.Maintenance.On = now.On
	return nil
}

// request is what the server would get.
func (c *Explain) request(cfg *config.Config) (*http.Request, error) {
	target := c.URL
	if strings.HasPrefix(target, "/") {
		target = origin(cfg) + target
	}
	u, err := url.Parse(target)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, cli.Usage(fmt.Sprintf("%q is not a URL", c.URL), "write it as a client asks for it: https://example.org/path, or /path alone")
	}
	from, err := netip.ParseAddr(c.Address)
	if err != nil {
		return nil, cli.Usage(fmt.Sprintf("--address %q is not an address", c.Address), "for example --address 203.0.113.7")
	}
	u.Path = cmp.Or(u.Path, "/")
	r, err := http.NewRequest(c.Method, u.String(), http.NoBody) //nolint:noctx // it is not sent
	if err != nil {
		return nil, cli.Usage(fmt.Sprintf("%s %q is not a request: %v", c.Method, c.URL, err), "")
	}
	r.URL.Scheme, r.URL.Host = "", ""
	r.RequestURI, r.RemoteAddr = r.URL.RequestURI(), netip.AddrPortFrom(from, 1).String()
	if u.Scheme == "https" {
		r.TLS = &tls.ConnectionState{}
	}
	for _, line := range c.Header {
		name, value, ok := strings.Cut(line, ":")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if !ok || name == "" || strings.ContainsAny(line, "\r\n") {
			return nil, cli.Usage(fmt.Sprintf("%q is not a header", line), "for example -H 'Cookie: beta=on'")
		}
		r.Header.Add(name, value)
		if strings.EqualFold(name, "Host") {
			r.Host = value
		}
	}
	r.Header.Del("Host")
	return r, nil
}

// origin is where a path alone is asked for: at the first site's first name.
func origin(cfg *config.Config) string {
	scheme, host := "http", "localhost"
	if len(cfg.TLS.Listen) > 0 && (len(cfg.Listen) == 0 || cfg.TLS.Redirects()) {
		scheme = "https"
	}
	if len(cfg.Sites) > 0 && len(cfg.Sites[0].Hosts) > 0 {
		host = strings.Replace(cfg.Sites[0].Hosts[0], "*", "any", 1)
	}
	return scheme + "://" + host
}

// write writes the answer, and then one step on a line.
func write(w io.Writer, e *engine.Explanation) error {
	width := 0
	for _, step := range e.Steps {
		width = max(width, len(step.Step))
	}
	var b strings.Builder
	answer := e.Answer
	if e.Status != 0 && !strings.HasPrefix(answer, fmt.Sprint(e.Status)) {
		answer = fmt.Sprintf("%d, %s", e.Status, answer)
	}
	fmt.Fprintf(&b, "%s\n  -> %s\n", e.Request, answer)
	for _, step := range e.Steps {
		fmt.Fprintf(&b, "  %-*s  %s\n", width, step.Step, step.Says)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
