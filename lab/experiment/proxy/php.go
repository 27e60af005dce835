package proxy

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"millrace/lab/experiment"
	"millrace/lab/load"
	"millrace/lab/subject"
)

// script answers with as many bytes as its query says, or with the length of what
// was sent to it.
const script = `<?php
header('Content-Type: application/octet-stream');
header('Cache-Control: no-store');
if ($_SERVER['REQUEST_METHOD'] === 'POST') {
    echo strlen(file_get_contents('php://input'));
} else {
    echo str_repeat('x', (int) $_SERVER['QUERY_STRING']);
}
`

// phpPath is where the script is.
const phpPath = "/php/bytes.php"

// phpRows are those of a script that php-fpm runs, in one pool for both servers,
// whose CPU time is not counted.
func (m *measurement) phpRows() []experiment.Row {
	var all []experiment.Row
	for _, what := range []struct {
		cfg load.Config
		row experiment.Row
	}{
		{load.Config{Paths: []string{phpPath + "?501"}}, experiment.Row{Name: "php", About: "GET of 501 bytes from a PHP script", Goal: 1.2, Headline: true, Quick: true}},
		{load.Config{Paths: []string{phpPath + "?32768"}}, experiment.Row{Name: "php-32k", About: "GET of 32 KiB from a PHP script", Goal: 1.2}},
		{load.Config{Paths: []string{phpPath}, Body: bytes.Repeat([]byte("x"), 1<<10)}, experiment.Row{Name: "php-post", About: "POST of 1 KiB to a PHP script", Goal: 1.2}},
	} {
		what.row.Arms, what.row.Missing = []string{nginx, millrace}, m.fpmMissing
		all = append(all, plain(few, what.cfg, what.row))
	}
	return all
}

// lookFPM finds php-fpm, whose name has its version on Debian.
func lookFPM() (string, error) {
	if exe, err := subject.Look("php-fpm", "php-fpm"); err == nil {
		return exe, nil
	}
	var found []string
	for _, dir := range []string{"/usr/sbin", "/usr/local/sbin", "/usr/bin"} {
		some, _ := filepath.Glob(filepath.Join(dir, "php-fpm[0-9]*")) // the pattern is right
		found = append(found, some...)
	}
	if len(found) == 0 {
		return "", subject.Missing{Tool: "php-fpm", Package: "php-fpm"}
	}
	return found[len(found)-1], nil
}

// startFPM starts php-fpm, if a row needs it.
func (m *measurement) startFPM(ctx context.Context, chosen []experiment.Row) (stop func(), err error) {
	if !slices.ContainsFunc(chosen, func(r experiment.Row) bool { return strings.HasPrefix(r.Name, "php") }) {
		return func() {}, nil
	}
	dir := filepath.Join(m.Env.Work, "php-fpm")
	m.phpRoot = filepath.Join(dir, "site")
	if err := os.MkdirAll(filepath.Join(m.phpRoot, "php"), 0o755); err != nil {
		return nil, fmt.Errorf("the folder of the scripts: %w", err)
	}
	if err := os.WriteFile(filepath.Join(m.phpRoot, phpPath), []byte(script), 0o644); err != nil {
		return nil, fmt.Errorf("writing the script: %w", err)
	}
	m.fpm = filepath.Join(dir, "fpm.sock")
	place := experiment.Place{Dir: dir, Address: "127.0.0.1:1", Second: "127.0.0.1:1"} // which it does not use
	if err := m.WriteConfig(place, experiment.Config{Peer: "php-fpm", Template: "fpm.conf.tmpl", Fields: m.fields}); err != nil {
		return nil, err
	}
	args := []string{"--nodaemonize", "--no-php-ini", "--fpm-config", experiment.ConfigFile(place)}
	if os.Geteuid() == 0 {
		args = append(args, "--allow-to-run-as-root")
	}
	p, err := subject.Start(ctx, exec.Command(m.fpmExe, args...), "unix:"+m.fpm, startTime)
	if err != nil {
		return nil, err
	}
	return func() { _ = p.Stop() }, nil // that it died shows in what it is asked
}

// withPHP adds the fields for php-fpm, empty where no row needs it.
func (m *measurement) withPHP(fields map[string]string) map[string]string {
	maps.Copy(fields, map[string]string{"FPM": m.fpm, "PHPRoot": m.phpRoot})
	return fields
}
