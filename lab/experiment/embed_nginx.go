package experiment

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/template"
	"time"

	"millrace/lab/subject"
)

// nginxFields are those of bench/peers/nginx/nginx.conf.tmpl.
type nginxFields struct {
	Dir     string // for everything nginx writes
	Site    string
	Address string
	Socket  string
	Log     string // path of the access log; empty: none
	User    string // of the workers; empty: as nginx is started
}

// nginx starts nginx as its manual advises for static files, on TCP and a UNIX
// socket.
func (s *fileServers) nginx() (launch, error) {
	exe, err := subject.Look("nginx", "nginx-light")
	if err != nil {
		return launch{}, err
	}
	if s.env.Bench == nil {
		return launch{}, errors.New("its config is in millrace's repository, bench/peers/nginx: run this in a checkout")
	}
	tmpl := filepath.Join(s.env.Bench.Dir, "peers", "nginx", "nginx.conf.tmpl")
	conf := func(p place) string { return filepath.Join(p.Dir, "nginx.conf") }
	return launch{
		exe: exe, socket: true,
		// -e: nginx opens an error log before it has read where it should be.
		args: func(p place) []string {
			return []string{"-p", p.Dir, "-e", filepath.Join(p.Dir, "error.log"), "-c", conf(p)}
		},
		prepare: func(p place) error {
			f := nginxFields{Dir: p.Dir, Site: p.Site, Address: p.Address, Socket: p.Socket}
			if os.Geteuid() == 0 {
				f.User = "root" // else its workers could not enter a private folder
			}
			text, err := nginxConfig(tmpl, f)
			if err == nil {
				err = os.WriteFile(conf(p), []byte(text), 0o644) //nolint:gosec // holds no secret
			}
			if err != nil {
				return fmt.Errorf("writing nginx's config: %w", err)
			}
			return nil
		},
	}, nil
}

// nginxConfig fills the template in file.
func nginxConfig(file string, f nginxFields) (string, error) {
	for _, value := range []string{f.Dir, f.Site, f.Address, f.Socket, f.Log, f.User} {
		if strings.ContainsAny(value, " \t\r\n;{}\"'\\$#") {
			return "", fmt.Errorf("%q holds a character that means something in a config of nginx: use another folder for temporary files (TMPDIR)", value)
		}
	}
	t, err := template.ParseFiles(file)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	if err := t.Execute(&b, f); err != nil {
		return "", err
	}
	return b.String(), nil
}

// nginxVersion is what nginx -v says, without its name.
func nginxVersion(ctx context.Context, exe string) string {
	ctx, cancel := context.WithTimeout(ctx, time.Second) // it prints a line
	defer cancel()
	out, err := exec.CommandContext(ctx, exe, "-v").CombinedOutput()
	if err != nil {
		return ""
	}
	_, version, _ := strings.Cut(strings.TrimSpace(string(out)), "nginx/")
	return version
}
