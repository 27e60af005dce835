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
	User    string // of the workers; empty: as nginx is started
	Address string

	// Of a site.
	Site   string
	Socket string
	Log    string // path of the access log; empty: none

	// Of a cache, and where WebSockets are passed on.
	Upstream string // host:port
	Memory   int    // MiB that its files may take
}

// nginxCommand is nginx's command with its config, which it writes first. log
// names the access log within the arm's folder; empty: none.
func nginxCommand(log string) func(Env) ([]string, error) {
	return func(e Env) ([]string, error) {
		c := nginxConfig{Dir: e.Dir, Site: e.Site, Address: e.Address, Socket: e.Socket()}
		if log != "" {
			c.Log = filepath.Join(e.Dir, log)
		}
		return nginxWith(e, "nginx.conf.tmpl", c)
	}
}

// nginxWith writes a config and is the command that reads it.
func nginxWith(e Env, source string, c nginxConfig) ([]string, error) {
	if os.Geteuid() == 0 {
		c.User = "root" // else its workers could not enter our private folder
	}
	conf := filepath.Join(e.Dir, "nginx.conf")
	if err := fill(conf, filepath.Join(e.Bench, "peers", "nginx", source), c, c.Dir, c.Site, c.Address, c.Socket, c.Log, c.User, c.Upstream); err != nil {
		return nil, fmt.Errorf("writing nginx's config: %w", err)
	}
	// -e: nginx opens an error log before it has read where it should be.
	return []string{"nginx", "-p", e.Dir, "-e", filepath.Join(e.Dir, "error.log"), "-c", conf}, nil
}

// fill writes a config from a template and what its fields are: words that
// must not mean anything in that config.
func fill(name, source string, fields any, words ...string) error {
	text, err := render(source, fields, words...)
	if err != nil {
		return err
	}
	return os.WriteFile(name, []byte(text), 0o644)
}

// render fills the template file source.
func render(source string, fields any, words ...string) (string, error) {
	for _, word := range words {
		if strings.ContainsAny(word, " \t\r\n;{}\"'\\$#") {
			return "", fmt.Errorf("%q holds a character that means something in a config", word)
		}
	}
	t, err := template.ParseFiles(source)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	if err := t.Execute(&b, fields); err != nil {
		return "", err
	}
	return b.String(), nil
}
