// Package docscmd has the verb that shows the manual: in the terminal, or as a site with a
// search. Both are made from the Markdown of package docs.
package docscmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

	"millrace/cmd/internal/cli"
	"millrace/docs"
	"millrace/internal/config"
)

// Docs is `millrace docs`.
type Docs struct {
	Topic  string `arg:"" optional:"" help:"What to read about, such as cache, tls or coming-from/nginx. Without it: the list of topics."`
	Serve  bool   `help:"Serve the manual as a site, with a search."`
	Listen string `short:"l" default:"127.0.0.1:8090" placeholder:"ADDR" help:"Where to serve it. Default ${default}."`
}

// Examples end the help of the verb.
func Examples() cli.Examples {
	return cli.Examples{"docs": {"millrace docs", "millrace docs cache", "millrace docs --serve"}}
}

// Run shows a page, the list of pages, or serves them.
func (c *Docs) Run(s cli.Streams) error {
	m, err := open(docs.Files)
	switch {
	case err != nil:
		return err
	case c.Serve:
		return c.serve(s, m)
	case c.Topic == "":
		return list(s.Out, m)
	}
	p, err := m.find(c.Topic)
	if err != nil {
		return err
	}
	if !cli.IsTerminal(s.Out) {
		return plain(s.Out, p, false)
	}
	return paged(s.Out, func(w io.Writer) error { return plain(w, p, true) })
}

// find is the page of a topic.
func (m *manual) find(topic string) (*page, error) {
	topic = strings.TrimSuffix(strings.ToLower(topic), ".md")
	var names []string
	for _, p := range m.pages {
		if p.name == topic {
			return p, nil
		}
		names = append(names, p.name)
	}
	for _, p := range m.pages { // nginx is coming-from/nginx, 58 is a decision
		_, last, _ := strings.Cut(p.name, "/")
		if last != "" && (last == topic || strings.HasPrefix(strings.TrimLeft(last, "0"), topic+"-")) {
			return p, nil
		}
	}
	hint := "`millrace docs` lists the topics"
	if n := config.Nearest(topic, names); n != "" {
		hint = fmt.Sprintf("did you mean %q?", n)
	} else if hits := m.search(topic); len(hits) > 0 {
		hint = fmt.Sprintf("it is mentioned in %q: %s", hits[0].page.name, hits[0].title)
	}
	return nil, cli.Failure(fmt.Errorf("the manual has no page %q", topic), hint)
}

// list prints the topics with their titles.
func list(w io.Writer, m *manual) error {
	var b strings.Builder
	for _, p := range m.pages {
		if !strings.HasPrefix(p.name, "decisions/") {
			fmt.Fprintf(&b, "%-24s  %s\n", p.name, p.title)
		}
	}
	fmt.Fprintf(&b, "\n`millrace docs TOPIC` shows one, `millrace docs --serve` all of them in a browser.\n")
	_, err := io.WriteString(w, b.String())
	return err //nolint:wrapcheck // the output's
}

// paged has the user's pager show what write writes.
func paged(out io.Writer, write func(io.Writer) error) error {
	pager := os.Getenv("PAGER")
	if pager == "" {
		pager = "less -R"
	}
	words := strings.Fields(pager)
	if _, err := exec.LookPath(words[0]); err != nil {
		return write(out)
	}
	cmd := exec.CommandContext(context.Background(), words[0], words[1:]...)
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	cmd.Env = append(os.Environ(), "LESSCHARSET=utf-8")
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return write(out)
	}
	_ = write(in) // the reader may have seen enough
	_ = in.Close()
	return cmd.Wait() //nolint:wrapcheck // it says which program
}

// serve serves the manual until it is interrupted.
func (c *Docs) serve(s cli.Streams, m *manual) error {
	ctx, stop := cli.UntilInterrupted()
	defer stop()
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", c.Listen)
	if err != nil {
		return cli.Failure(fmt.Errorf("serving the manual: %w", err), "name another address: --listen 127.0.0.1:0 takes a free port")
	}
	s.Print("the manual is at http://%s\n", ln.Addr())
	const patience = 10 * time.Second
	srv := &http.Server{Handler: m, ReadHeaderTimeout: patience, WriteTimeout: patience, IdleTimeout: time.Minute}
	ended := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer ended()
	if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving the manual: %w", err)
	}
	return nil
}
