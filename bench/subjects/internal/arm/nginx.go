package arm

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"
)

// nginxConfig is what bench/peers/nginx/nginx.conf.tmpl is filled with.
type nginxConfig struct {
	Dir     string // for everything nginx writes
	Site    string
	Address string
	Socket  string
	Log     string // path of the access log; empty: none
	User    string // of the workers; empty: as nginx is started
}

// nginxCommand is nginx's command with its config, which it writes first. log
// names the access log within the arm's folder; empty: none.
func nginxCommand(log string) func(Env) ([]string, error) {
	return func(e Env) ([]string, error) {
		c := nginxConfig{Dir: e.Dir, Site: e.Site, Address: e.Address, Socket: e.Socket()}
		if log != "" {
			c.Log = filepath.Join(e.Dir, log)
		}
		if os.Geteuid() == 0 {
			c.User = "root" // else its workers could not enter our private folder
		}
		text, err := renderNginx(filepath.Join(e.Bench, "peers", "nginx", "nginx.conf.tmpl"), c)
		if err != nil {
			return nil, fmt.Errorf("writing nginx's config: %w", err)
		}
		conf := filepath.Join(e.Dir, "nginx.conf")
		if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
			return nil, fmt.Errorf("writing nginx's config: %w", err)
		}
		// -e: nginx opens an error log before it has read where it should be.
		return []string{"nginx", "-p", e.Dir, "-e", filepath.Join(e.Dir, "error.log"), "-c", conf}, nil
	}
}

// renderNginx fills the template file name with c.
func renderNginx(name string, c nginxConfig) (string, error) {
	for _, value := range []string{c.Dir, c.Site, c.Address, c.Socket, c.Log, c.User} {
		if strings.ContainsAny(value, " \t\r\n;{}\"'\\$#") {
			return "", fmt.Errorf("%q holds a character that means something in a config of nginx", value)
		}
	}
	t, err := template.ParseFiles(name)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	if err := t.Execute(&b, c); err != nil {
		return "", err
	}
	return b.String(), nil
}
