package servecmd

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"millrace/cmd/internal/cli"
	"millrace/cmd/internal/imagescmd"
	"millrace/internal/config"
	"millrace/internal/engine"
	"millrace/internal/process/confine"
)

// expiresSoon is when a certificate should have been renewed.
const expiresSoon = 7 * 24 * time.Hour

// Check is `millrace check`.
type Check struct {
	File   string `arg:"" optional:"" complete:"file" help:"The config. Default millrace.yaml."`
	Config string `short:"c" placeholder:"FILE" complete:"file" env:"MILLRACE_CONFIG" help:"The same, as in serve."`
}

// Run reads the config as serve would, tries its addresses and its certificate,
// and says what is wrong with them.
func (c *Check) Run(s cli.Streams) error {
	ctx, stop := cli.UntilInterrupted()
	defer stop()
	if c.File != "" && c.Config != "" && c.Config != os.Getenv("MILLRACE_CONFIG") {
		return cli.Usage("two configs: only one can be checked at a time", fmt.Sprintf("`millrace check %s`", c.File))
	}
	file := cmp.Or(c.File, c.Config, config.FileName)
	cfg, err := config.Load(file)
	if err != nil {
		return cli.BadConfig(file, err)
	}
	if err := engine.Unsupported(cfg); err != nil {
		return cli.BadConfig(file, err)
	}
	found, notes := tryAddresses(ctx, cfg)
	if len(found) > 0 {
		return cli.BadConfig(file, found)
	}
	if err := wouldStart(cfg); err != nil {
		return fmt.Errorf("%s: a server would not start: %w", file, err)
	}
	for _, site := range cfg.Sites {
		for _, pattern := range slices.Sorted(maps.Keys(site.Routes)) {
			for _, note := range engine.Notes(site, pattern) {
				if !slices.Contains(notes, note) { // of another route with the same folder
					notes = append(notes, note)
				}
			}
		}
	}
	for _, note := range append(notes, certificateNotes(cfg, time.Now())...) {
		s.Print("%s: note: %s\n", file, note)
	}
	_, err = fmt.Fprintf(s.Out, "%s: ok (%s, %s)\n%s", file, cli.Count(len(cfg.Sites), "site"), cli.Count(cfg.Routes(), "route"), workersHere(ctx, cfg))
	return err
}

// tryAddresses says which addresses this machine does not have, and notes those
// that cannot be had now: whoever checks may not be who serves, and who serves
// may be there already.
func tryAddresses(ctx context.Context, cfg *config.Config) (found config.Findings, notes []string) {
	for i, addr := range slices.Concat(cfg.Listen, cfg.TLS.Listen) {
		failed, ok := errors.AsType[*engine.ListenError](engine.TryAddress(addr))
		if !ok {
			continue
		}
		failed.Secure = i >= len(cfg.Listen)
		switch {
		case errors.Is(failed, syscall.EADDRINUSE) && isServed(ctx, addr):
		case errors.Is(failed, syscall.EADDRINUSE), errors.Is(failed, fs.ErrPermission):
			notes = append(notes, failed.Unwrap().Error())
		default:
			found = append(found, aboutAddress(cfg, failed)...)
		}
	}
	at := cfg.Admin.Listen
	if at == "" || at == config.Off {
		return found, notes
	}
	if failed, ok := errors.AsType[*engine.ListenError](engine.TryAddress(at)); ok {
		switch {
		case errors.Is(failed, syscall.EADDRINUSE) && cli.Answers(ctx, at):
		case errors.Is(failed, syscall.EADDRINUSE), errors.Is(failed, fs.ErrPermission):
			notes = append(notes, "admin: "+failed.Unwrap().Error())
		default:
			found = append(found, cfg.About("admin.listen", failed.Unwrap().Error(), "")...)
		}
	}
	return found, notes
}

// wouldStart is what else keeps a server from starting: it is built as serve does.
func wouldStart(cfg *config.Config) error {
	if cfg.Sandbox.On() {
		if b := (&sandbox{options: cfg.Sandbox, missing: confine.Possible()}); b.missing != nil && b.refused() != nil {
			return b.refused()
		}
	}
	return engine.Check(cfg, imagescmd.WorkerCommand()) //nolint:wrapcheck // as serve says it
}

// isServed reports whether a millrace that runs here has the address.
func isServed(ctx context.Context, addr string) bool {
	if strings.HasPrefix(addr, ":") {
		addr = "localhost" + addr
	}
	return cli.Served(ctx, "http://"+addr)
}

// aboutAddress is the failure of an address as a finding in the config's line
// that has it; none where no line has.
func aboutAddress(cfg *config.Config, failed *engine.ListenError) config.Findings {
	list, key := cfg.Listen, "listen"
	if failed.Secure {
		list, key = cfg.TLS.Listen, "tls.listen"
	}
	hint := ""
	switch other := failed.Other(); {
	case other != "":
		hint = "for example " + other
	case errors.Is(failed, syscall.EADDRNOTAVAIL):
		hint = "this machine does not have that address; :8080 is every address it has"
	}
	path := fmt.Sprintf("%s[%d]", key, slices.Index(list, failed.Addr))
	return cfg.About(path, failed.Unwrap().Error(), hint)
}

// certificateNotes says what clients will not like about the certificates.
func certificateNotes(cfg *config.Config, now time.Time) (notes []string) {
	var leaves []*x509.Certificate
	pairs := cfg.TLS.Pairs()
	for _, files := range pairs {
		pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
		if err != nil {
			return nil // the config's own check has said so
		}
		leaf := pair.Leaf
		leaves = append(leaves, leaf)
		switch {
		case now.After(leaf.NotAfter):
			notes = append(notes, fmt.Sprintf("the certificate %s has expired on %s", files.Cert, leaf.NotAfter.Format(time.DateOnly)))
		case now.Before(leaf.NotBefore):
			notes = append(notes, fmt.Sprintf("the certificate %s is not valid before %s", files.Cert, leaf.NotBefore.Format(time.DateOnly)))
		case leaf.NotAfter.Sub(now) < expiresSoon:
			notes = append(notes, fmt.Sprintf("the certificate %s expires on %s", files.Cert, leaf.NotAfter.Format(time.DateOnly)))
		}
	}
	if len(leaves) == 0 {
		return nil
	}
	for _, site := range cfg.Sites {
		for _, host := range site.Hosts {
			name := strings.Replace(host, "*", "any", 1)
			switch fits := func(leaf *x509.Certificate) bool { return leaf.VerifyHostname(name) == nil }; {
			case slices.ContainsFunc(leaves, fits):
			case len(leaves) == 1:
				notes = append(notes, fmt.Sprintf("the certificate %s is not for the host %s", pairs[0].Cert, host))
			default:
				notes = append(notes, fmt.Sprintf("none of the certificates is for the host %s; it gets %s", host, pairs[0].Cert))
			}
		}
	}
	return notes
}

// workersHere says what would keep the image workers of a config from the rest
// of this machine, were it served by this user: one is started to find out.
// Empty for a config that converts no images.
func workersHere(ctx context.Context, cfg *config.Config) string {
	if !slices.ContainsFunc(cfg.Sites, func(s config.Site) bool {
		for _, r := range s.Routes {
			if r.Images != nil {
				return true
			}
		}
		return false
	}) {
		return ""
	}
	report, err := imagescmd.Probe(ctx)
	if err != nil {
		return fmt.Sprintf("image workers: %v\n", err)
	}
	var b strings.Builder
	for _, row := range imagescmd.Confined(report) {
		fmt.Fprintf(&b, "image %-8s %s\n", cmp.Or(row[0], "workers"), row[1])
	}
	return b.String()
}
