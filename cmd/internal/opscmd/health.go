package opscmd

// This file has the verb that asks a running server whether it takes requests, for
// container engines and load balancers.

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"millrace/cmd/internal/cli"
)

// Health is `millrace health`.
type Health struct {
	Timeout time.Duration `default:"3s" placeholder:"TIME" help:"How long the server may take to answer. Default ${default}."`

	cli.Flags `embed:""`
}

// HealthExamples end the help of the verb.
func HealthExamples() cli.Examples {
	return cli.Examples{"health": {"millrace health", "millrace health --admin 127.0.0.1:9090"}}
}

// Run prints what the server says. Its error is that the server takes no requests.
func (c *Health) Run(s cli.Streams) error {
	ctx, stop := cli.UntilInterrupted()
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	r, err := c.FindAny(ctx)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.Base+"/healthz", nil)
	if err != nil {
		return fmt.Errorf("asking the server: %w", err)
	}
	resp, err := r.HTTP.Do(req)
	if err != nil {
		return fmt.Errorf("asking the server at %s: %w", r.At, err)
	}
	defer resp.Body.Close()
	const most = 1 << 10
	said, err := io.ReadAll(io.LimitReader(resp.Body, most))
	if err != nil {
		return fmt.Errorf("asking the server at %s: %w", r.At, err)
	}
	text := strings.TrimSpace(string(said))
	if resp.StatusCode != http.StatusOK {
		return cli.Failure(fmt.Errorf("the server at %s takes no requests: %s", r.At, text), "")
	}
	_, err = fmt.Fprintln(s.Out, text)
	return err //nolint:wrapcheck // the output's
}
