package compare

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"millrace/importer/caddy"
	"millrace/importer/draft"
)

// CaddyOptions say how Caddy is started.
type CaddyOptions struct {
	Binary    string // caddy where it is empty
	File      string // the Caddyfile
	Addresses []caddy.Address
	Cert, Key string // shown instead of the config's own certificates
}

// StartCaddy starts Caddy by a Caddyfile, on loopback ports, without automatic
// HTTPS and without its admin listener. The caller stops it.
func StartCaddy(ctx context.Context, o CaddyOptions) (*Server, error) {
	binary := cmp.Or(o.Binary, "caddy")
	adapt := exec.CommandContext(ctx, binary, "adapt", "--config", o.File, "--adapter", "caddyfile") //nolint:gosec // the operator names it
	var messages bytes.Buffer
	adapt.Stderr = &messages
	adapt.Dir = filepath.Dir(o.File)
	text, err := adapt.Output()
	if err != nil {
		return nil, fmt.Errorf("caddy adapt: %w: %s", err, strings.TrimSpace(messages.String()))
	}
	s, err := folder("Caddy")
	if err != nil {
		return nil, err
	}
	changed, err := s.loopback(text, o)
	if err == nil {
		err = os.WriteFile(filepath.Join(s.dir, "caddy.json"), changed, 0o600)
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.dir))
	}
	args := []string{"run", "--config", filepath.Join(s.dir, "caddy.json")}
	if err := s.start(ctx, binary, args, []string{"XDG_DATA_HOME=" + s.dir, "XDG_CONFIG_HOME=" + s.dir}); err != nil {
		return nil, err
	}
	return s, nil
}

// loopback changes the ports in what Caddy has made of a Caddyfile.
func (s *Server) loopback(text []byte, o CaddyOptions) ([]byte, error) {
	var config struct {
		Apps struct {
			HTTP struct {
				Servers map[string]map[string]any `json:"servers"`
			} `json:"http"`
		} `json:"apps"`
	}
	if err := json.Unmarshal(text, &config); err != nil {
		return nil, fmt.Errorf("reading what caddy adapt has written: %w", err)
	}
	var p ports
	defer p.free()
	for _, server := range config.Apps.HTTP.Servers {
		listen, _ := server["listen"].([]any)
		var to []string
		secure := false
		for _, l := range listen {
			_, port, err := net.SplitHostPort(fmt.Sprint(l))
			if err != nil {
				continue
			}
			address, err := p.address(port)
			if err != nil {
				return nil, err
			}
			to = append(to, address)
			for _, a := range o.Addresses {
				if a.Port != port {
					continue
				}
				secure = secure || a.TLS
				s.Sites = append(s.Sites, Site{Host: hostOf(a.Host), TLS: a.TLS, Theirs: address})
			}
		}
		server["listen"] = to
		server["automatic_https"] = map[string]any{"disable": true}
		delete(server, "tls_connection_policies")
		delete(server, "listener_wrappers")
		delete(server, "logs")
		if secure {
			server["tls_connection_policies"] = []any{map[string]any{"fallback_sni": "localhost"}}
		}
	}
	if len(s.Sites) == 0 {
		return nil, errors.New("the Caddyfile has no site")
	}
	apps := map[string]any{
		"http": map[string]any{"servers": config.Apps.HTTP.Servers},
		"tls":  map[string]any{"certificates": map[string]any{"load_files": []any{map[string]any{"certificate": o.Cert, "key": o.Key}}}},
	}
	out, err := json.Marshal(map[string]any{
		"admin": map[string]any{"disabled": true, "config": map[string]any{"persist": false}}, "apps": apps,
		"logging": map[string]any{"logs": map[string]any{"default": map[string]any{"level": "ERROR"}}},
	})
	if err != nil {
		return nil, fmt.Errorf("writing Caddy's config: %w", err)
	}
	return out, nil
}

// hostOf is a host that an address answers for.
func hostOf(host string) string {
	switch {
	case host == "" || draft.HasEnvironment(host):
		return "localhost"
	case strings.HasPrefix(host, "*."):
		return "any" + host[1:]
	}
	return host
}
