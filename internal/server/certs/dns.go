package certs

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/mholt/acmez/v3/acme"
)

// programTime is how long the program may take until a record is visible.
const programTime = 5 * time.Minute

// program solves dns-01 challenges (RFC 8555, 8.4) by running a program of the
// operator's:
//
//	PROGRAM present NAME VALUE   make the TXT record; return when it can be seen
//	PROGRAM cleanup NAME VALUE   remove it
//
// NAME is without a dot at its end. An exit status other than 0 is a failure; its last
// line of output is in the error.
type program struct{ path string }

// Present implements acmez.Solver.
func (p *program) Present(ctx context.Context, c acme.Challenge) error {
	return p.run(ctx, "present", c)
}

// CleanUp implements acmez.Solver.
func (p *program) CleanUp(ctx context.Context, c acme.Challenge) error {
	return p.run(context.WithoutCancel(ctx), "cleanup", c)
}

func (p *program) run(ctx context.Context, verb string, c acme.Challenge) error {
	ctx, cancel := context.WithTimeout(ctx, programTime)
	defer cancel()
	name := strings.TrimSuffix(c.DNS01TXTRecordName(), ".")
	cmd := exec.CommandContext(ctx, p.path, verb, name, c.DNS01KeyAuthorization())
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return fmt.Errorf("%s %s %s: %w: %s", p.path, verb, name, err, lines[len(lines)-1])
}
