package engine_test

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"millrace/internal/config"
	"millrace/internal/engine"
	"millrace/internal/process/servertest"
)

// named is a config that names a file or folder of every kind, below dir. Each has
// a name of its own, so that one alone can be damaged.
func named(t *testing.T, dir string) string {
	t.Helper()
	put := func(name, text string) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pair := func(cert, key string) {
		c, k := servertest.Files(t, servertest.Make(t, "localhost", "localhost"), t.TempDir())
		for to, from := range map[string]string{cert: c, key: k} {
			if to == "" {
				continue
			}
			b, err := os.ReadFile(from)
			if err != nil {
				t.Fatal(err)
			}
			put(to, string(b))
		}
	}
	pair("cert.pem", "key.pem")
	pair("clients.pem", "")
	pair("roots.pem", "")
	pair("upstream-ca.pem", "")
	pair("upstream-cert.pem", "upstream-key.pem")
	put("public/index.html", "page")
	put("photos/a.txt", "page")
	put("php/index.php", "<?php")
	put("users", "a:$2a$04$zVHmKQtGGQob.b/Nc7l9NO8UlrYcW05FiuCj/SxsFO/ZtiN9.mNzy\n")
	put("allowed", "10.0.0.0/8\n")
	put("denied", "192.0.2.0/24\n")
	put("down.html", "down")
	put("text.html", "text")
	put("rule.html", "text")
	put("table", "/a /b\n")
	put("jwt.pem", publicKey(t))
	put("channels.pem", publicKey(t))
	put("logs/x", "")
	return strings.ReplaceAll(`
listen: []
admin: {listen: "off"}
log: {format: json, file: DIR/logs/access.log}
maintenance: {file: DIR/down.html}
tables: {moved: {file: DIR/table}}
tls:
  listen: 127.0.0.1:0
  cert: DIR/cert.pem
  key: DIR/key.pem
  client_ca: DIR/clients.pem

  auto: {hosts: [a.example], ca: [internal], ca_roots: DIR/roots.pem, storage: DIR/certificates}
sites:
- access: {allow_files: [DIR/allowed], deny_files: [DIR/denied]}
  rules: [{path: /rule, respond: {file: DIR/rule.html}}]
  routes:
    /: {static: {root: DIR/public}, auth: {file: DIR/users}}
    /text: {respond: {file: DIR/text.html}}
    /jwt/: {static: {root: DIR/public}, auth: {jwt: {public_key: DIR/jwt.pem}}}
    /api/: {cache: {to: ["https://127.0.0.1:1"], disk: DIR/cache, tls: {ca: DIR/upstream-ca.pem, cert: DIR/upstream-cert.pem, key: DIR/upstream-key.pem}}}
    /php/: {static: {root: DIR/php}, php: {to: ["unix:/nowhere/php.sock"]}}
    /live/: {websocket: {channels: {auth: {jwt: {public_key: DIR/channels.pem}}}}}
`, "DIR", dir)
}

// verdicts are what check and a server say of a config; empty: nothing.
func verdicts(text string) (checked, served string) {
	verdict := func(try func(*config.Config) error) string {
		cfg, err := config.Parse("test.yaml", []byte(text))
		if err == nil {
			err = try(cfg)
		}
		if err != nil {
			return err.Error()
		}
		return ""
	}
	checked = verdict(func(cfg *config.Config) error { return engine.Check(cfg, nil) })
	served = verdict(func(cfg *config.Config) error {
		srv, err := engine.New(cfg, engine.Options{ErrorLog: slog.New(slog.DiscardHandler)})
		if err != nil {
			return err
		}
		ended, end := context.WithCancel(context.Background())
		end()
		return srv.Run(ended)
	})
	return checked, served
}

// publicKey is one for tokens, as PEM.
func publicKey(t *testing.T) string {
	t.Helper()
	public, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

// TestCheckIsServe: check refuses what a server refuses, and nothing else, whatever
// has become of a file or folder that the config names.
func TestCheckIsServe(t *testing.T) {
	t.Parallel() // it mostly waits
	dir := t.TempDir()
	text := named(t, dir)
	if checked, served := verdicts(text); checked != "" || served != "" {
		t.Fatalf("the config is not in order: check %q, serve %q", checked, served)
	}
	cfg, err := config.Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	files := cfg.Files()
	if n := strings.Count(text, dir+"/"); len(files) != n {
		t.Fatalf("the config names %d files and folders, and %d of them are known: %q", n, len(files), files)
	}
	slices.Sort(files)
	refused := map[string]bool{}
	for _, path := range slices.Compact(files) {
		for damage, make := range damages() {
			aside := path + ".aside"
			if err := os.Rename(path, aside); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
			make(t, path)
			checked, served := verdicts(text)
			if (checked == "") != (served == "") {
				t.Errorf("%s %s: check says %q, serve says %q", filepath.Base(path), damage, checked, served)
			}
			refused[filepath.Base(path)] = refused[filepath.Base(path)] || served != ""
			if err := os.RemoveAll(path); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(aside, path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
		}
	}
	for _, name := range []string{"cert.pem", "key.pem", "roots.pem", "clients.pem", "users", "allowed", "jwt.pem", "upstream-ca.pem", "upstream-key.pem", "table", "public", "cache", "certificates"} {
		if !refused[name] {
			t.Errorf("no damage of %s was refused: the test does not see it", name)
		}
	}
}

// damages are what may be at a path instead.
func damages() map[string]func(t *testing.T, path string) {
	write := func(text string) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			t.Helper()
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	return map[string]func(t *testing.T, path string){
		"is missing":                   func(*testing.T, string) {},
		"is empty":                     write(""),
		"is damaged":                   write("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
		"is no text":                   write("\x00\xff\x80 {{{ \n\x1b"),
		"is an empty folder":           func(t *testing.T, path string) { t.Helper(); _ = os.Mkdir(path, 0o755) },
		"is a link that leads nowhere": func(t *testing.T, path string) { t.Helper(); _ = os.Symlink(path+".nowhere", path) },
	}
}
