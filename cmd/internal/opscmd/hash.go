package opscmd

// This file has the verbs about who is let in: hashes of passwords, and signed
// addresses.

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"millrace/cmd/internal/cli"
	"millrace/internal/access/password"
)

// Hash is `millrace hash-password`.
type Hash struct {
	User     string `placeholder:"NAME" help:"Print a line for a file of passwords: NAME and the hash."`
	Argon2id bool   `name:"argon2id" help:"Make a hash of argon2id instead of bcrypt: 19 MiB of memory for each check."`
}

// Run hashes the first line of the standard input.
func (c *Hash) Run(s cli.Streams) error {
	if info, err := os.Stdin.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		s.Print("The password, and Enter (it is shown):\n")
	}
	line, err := firstLine(os.Stdin)
	if err != nil {
		return fmt.Errorf("reading the password: %w", err)
	}
	if strings.ContainsAny(c.User, ":\r\n") {
		return cli.Failure(fmt.Errorf("%q cannot be a user's name", c.User), "names have no colon")
	}
	kind := password.Bcrypt
	if c.Argon2id {
		kind = password.Argon2id
	}
	hash, err := password.New(line, kind)
	if err != nil {
		return cli.Failure(err, "for example: echo 'open sesame' | millrace hash-password")
	}
	if c.User != "" {
		hash = c.User + ":" + hash
	}
	if _, err := fmt.Fprintln(s.Out, hash); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	return nil
}

// firstLine reads a line of at most 4 KiB, without its end.
func firstLine(in io.Reader) (string, error) {
	const longest = 4 << 10
	line, err := bufio.NewReader(io.LimitReader(in, longest)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	return strings.TrimRight(line, "\r\n"), nil
}

// PasswordExamples end the help of the verbs.
func PasswordExamples() cli.Examples {
	return cli.Examples{
		"hash-password": {"echo 'open sesame' | millrace hash-password", "echo 'open sesame' | millrace hash-password --user alice >> htpasswd"},
		"sign":          {"printenv SIGN_SECRET | millrace sign https://example.org/files/a.zip", "millrace sign /files/a.zip --for 24h --secret-file secret"},
	}
}
