package opscmd

// This file has the verbs about certificates that come by themselves: certs
// lists those of a running server, trust says how to trust the internal CA.

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"millrace/cmd/internal/cli"
	"millrace/internal/ops/admin"
	"millrace/internal/server"
)

// Certs is `millrace certs`.
type Certs struct {
	JSON bool `name:"json" help:"Print them as JSON."`

	cli.Flags `embed:""`
}

// Run asks the running server.
func (c *Certs) Run(s cli.Streams) error {
	ctx, stop := cli.UntilInterrupted()
	defer stop()
	r, err := c.Find(ctx, func(ctx context.Context, r *cli.Server) bool {
		all, err := list(ctx, r)
		return err == nil && len(all) > 0
	})
	if errors.Is(err, cli.ErrNoServer) {
		return cli.Failure(cli.ErrNoServer, "start one with `millrace serve DIR --domain NAME`, or say where it is: --admin ADDR, the \"admin\" of its banner")
	}
	if err != nil {
		return err
	}
	all, err := list(ctx, r)
	if err != nil {
		return err
	}
	if c.JSON {
		return cmp.Or(s.WriteJSON(all), failed(all))
	}
	if len(all) == 0 {
		s.Print("No certificates come by themselves here: `millrace serve DIR --domain NAME`, or \"tls: auto\" in a config.\n")
		return nil
	}
	return cmp.Or(writeCerts(s.Out, all), failed(all))
}

// failed is an error where every name was asked for in vain, so that a script sees
// it.
func failed(all []admin.Certificate) error {
	for _, c := range all {
		if c.LastError == "" || c.To != nil && time.Now().Before(*c.To) {
			return nil
		}
	}
	if len(all) == 0 {
		return nil
	}
	return errors.New("no name has a certificate that is valid, and the last attempt of each has failed")
}

func list(ctx context.Context, r *cli.Server) (all []admin.Certificate, err error) {
	return all, r.List(ctx, admin.CertsPath, "certificates", &all)
}

// writeCerts prints a line for each name, and below it what went wrong last.
func writeCerts(out io.Writer, all []admin.Certificate) error {
	var b, wrong strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	row := func(cells ...string) { _, _ = io.WriteString(w, strings.Join(cells, "\t")+"\n") } // into memory
	row("NAME", "ISSUER", "FROM", "TO", "RENEWAL", "TRIED")
	for _, c := range all {
		issuer := c.Issuer
		if c.To == nil {
			issuer = "none yet"
		}
		row(c.Name, issuer, day(c.From), day(c.To), day(c.Renewal), tried(c))
		if c.LastError != "" {
			fmt.Fprintf(&wrong, "\n%s, %s: %s\n", c.Name, day(c.LastFailed), c.LastError)
			if c.LimitedUntil != nil {
				fmt.Fprintf(&wrong, "  Next attempt: after %s.\n", day(c.LimitedUntil))
			} else if c.Next != nil {
				fmt.Fprintf(&wrong, "  Next attempt: %s, or with `millrace reload`.\n", day(c.Next))
			}
		}
	}
	_ = w.Flush() // into memory as well
	if _, err := io.WriteString(out, b.String()+wrong.String()); err != nil {
		return fmt.Errorf("writing the list: %w", err)
	}
	return nil
}

// tried says how often a certificate was asked for since the server is up.
func tried(c admin.Certificate) string {
	text := fmt.Sprintf("%d times", c.Attempts)
	switch c.Attempts {
	case 0:
		return "-" // it was in the folder
	case 1:
		text = "once"
	}
	if c.Failures > 0 {
		text += fmt.Sprintf(", %d failed", c.Failures)
	}
	return text
}

func day(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.Local().Format("2006-01-02 15:04")
}

// Trust is `millrace trust`.
type Trust struct {
	Storage string `placeholder:"DIR" complete:"dir" help:"The folder with the certificates, where the config has tls.auto.storage. Default: the usual one."`
}

// Run prints what to type; it changes nothing, as only root may.
func (c *Trust) Run(s cli.Streams) error {
	folder, err := server.CertificateFolder(c.Storage)
	if err != nil {
		return err
	}
	root := filepath.Join(folder, filepath.FromSlash(server.InternalRoot))
	if _, err := os.Stat(root); err != nil {
		return cli.Failure(fmt.Errorf("there is no internal CA in %s", folder), "it is made by the first `millrace serve DIR --tls internal`; where the config has tls.auto.storage: --storage DIR")
	}
	_, err = fmt.Fprintf(s.Out, `The internal CA of this machine is %[1]s

Debian, Ubuntu:  sudo cp %[1]s /usr/local/share/ca-certificates/millrace.crt && sudo update-ca-certificates
Fedora:          sudo trust anchor %[1]s
macOS:           sudo security add-trusted-cert -d -r trustRoot -k /Library/Keychains/System.keychain %[1]s
Windows:         certutil -addstore -f ROOT %[1]s
Firefox, Chrome on Linux:  import the file in the settings, under certificates, authorities
curl:            curl --cacert %[1]s %[2]s

Whoever has the key beside it can pose as any site to a machine that trusts it: trust it on machines for development alone.
`, root, served(root))
	if err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	return nil
}

// served is the URL of a page with a certificate of the CA whose own is in a file: of a
// server that runs here, else the usual one.
func served(root string) string {
	const usual = "https://localhost:8443/" // by tls: internal alone
	text, err := os.ReadFile(root)
	block, _ := pem.Decode(text)
	if err != nil || block == nil {
		return usual
	}
	ca, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return usual
	}
	ctx, stop := context.WithTimeout(context.Background(), time.Second)
	defer stop()
	running, _, _ := cli.Flags{}.All(ctx) // where none can be found, the usual one does
	for _, r := range running {
		all, err := list(ctx, r)
		if err != nil {
			continue
		}
		addrs, err := r.Addrs(ctx)
		if err != nil {
			continue
		}
		for _, c := range all {
			for _, a := range addrs {
				u, err := url.Parse(a)
				if err == nil && u.Scheme == "https" && c.Issuer == ca.Subject.CommonName && !strings.HasPrefix(c.Name, "*") {
					return "https://" + net.JoinHostPort(c.Name, u.Port()) + "/"
				}
			}
		}
	}
	return usual
}

// CertsExamples end the help of the verbs.
func CertsExamples() cli.Examples {
	return cli.Examples{
		"certs": {"millrace certs                             # those of the server that runs here"},
		"trust": {"millrace serve . --tls internal & millrace trust"},
	}
}
