package opscmd

import (
	"fmt"
	"io"
	"os"
	"time"

	"millrace/cmd/internal/cli"
	"millrace/internal/access/signin"
)

// Sign is `millrace sign`.
type Sign struct {
	Address    string        `arg:"" help:"The address to sign, or its path: https://example.org/files/a.zip, /files/a.zip?v=2."`
	For        time.Duration `default:"1h" placeholder:"TIME" help:"How long it is good. Default 1h."`
	SecretFile string        `placeholder:"FILE" complete:"file" help:"The file with the secret. Default: the standard input."`
}

// Run prints the signed address.
func (c *Sign) Run(s cli.Streams) error {
	const usage = "for example: printenv SIGN_SECRET | millrace sign /files/a.zip --for 24h"
	var in io.Reader = os.Stdin
	if c.SecretFile != "" {
		f, err := os.Open(c.SecretFile)
		if err != nil {
			return fmt.Errorf("reading the secret: %w", err)
		}
		defer f.Close()
		in = f
	} else if info, err := os.Stdin.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		s.Print("The secret, and Enter (it is shown):\n")
	}
	secret, err := firstLine(in)
	if err != nil {
		return fmt.Errorf("reading the secret: %w", err)
	}
	if c.For <= 0 {
		return cli.Failure(fmt.Errorf("an address that is good for %s is not good at all", c.For), usage)
	}
	signed, err := (&signin.Signed{Secret: secret}).Sign(c.Address, time.Now().Add(c.For))
	if err != nil {
		return cli.Failure(err, usage)
	}
	if _, err := fmt.Fprintln(s.Out, signed); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	return nil
}
