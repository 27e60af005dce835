package certs

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"millrace/internal/server"
)

// TestDamagedStorage: what a full disk or a lost machine has left behind is named,
// with what to do about it.
func TestDamagedStorage(t *testing.T) {
	folder := t.TempDir()
	open := func() *Manager {
		m, err := Open(server.AutoOptions{CA: []string{server.CAInternal}, Storage: folder}, nil, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Manage([]string{"a.example"}, nil); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = m.Close() })
		return m
	}
	wait := func(m *Manager, done func(had, failed bool) bool) string {
		for begun := time.Now(); time.Since(begun) < 20*time.Second; time.Sleep(5 * time.Millisecond) {
			if s := m.Status()[0]; done(s.To != nil, s.LastError != "") {
				return s.LastError
			}
		}
		t.Fatalf("nothing comes of it: %+v", m.Status())
		return ""
	}
	m := open()
	wait(m, func(had, _ bool) bool { return had })
	_ = m.Close()
	whole := map[string][]byte{}
	for _, name := range []string{server.InternalRoot, server.InternalRootKey, "certificates/internal/a.example/a.example.key", "certificates/internal/a.example/a.example.crt", "certificates/internal/a.example/a.example.json"} {
		text, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		whole[filepath.Join(folder, name)] = text
	}
	leaf := filepath.Join(folder, "certificates/internal/a.example")
	for path, text := range whole {
		for what, left := range map[string][]byte{"empty": nil, "damaged": text[:len(text)/2]} {
			if err := os.WriteFile(path, left, 0o600); err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(path, leaf) { // else the certificate is there
				_ = os.Rename(leaf, leaf+".aside")
			}
			m := open()
			if why := wait(m, func(_, failed bool) bool { return failed }); !strings.Contains(why, path+" is "+what) || !strings.Contains(why, "delete the folder") {
				t.Errorf("%s is %s: it says %q", path, what, why)
			}
			_ = m.Close()
			_ = os.RemoveAll(filepath.Join(folder, "locks"))
			_ = os.Rename(leaf+".aside", leaf)
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// opened opens a folder of certificates, as at a start, and closes it.
func opened(t *testing.T, folder string) {
	t.Helper()
	m, err := Open(server.AutoOptions{CA: []string{server.CAInternal}, Storage: folder}, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	_ = m.Close()
}

// TestStaleLock: one that its holder keeps fresh stays.
func TestStaleLock(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "locks", "a.lock")
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	for updated, stays := range map[time.Time]bool{time.Now(): true, time.Now().Add(-time.Minute): false} {
		text := `{"created":"2020-01-01T00:00:00Z","updated":"` + updated.Format(time.RFC3339Nano) + `"}`
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		opened(t, folder)
		if _, err := os.Stat(path); (err == nil) != stays {
			t.Errorf("a lock of %v: %v", updated, err)
		}
	}
}

// TestDamagedFiles: the files of an account and of locks are told apart.
func TestDamagedFiles(t *testing.T) {
	for name, want := range map[string]string{
		"acme/ca.example/users/a@b.example/a.json": "a new account is made",
		"acme/ca.example/users/a@b.example/a.key":  "a new account is made",
		"certificates/ca.example/a/a.crt":          "a new certificate is asked for",
		"locks/issue_cert_a.lock":                  "delete it",
	} {
		folder := t.TempDir()
		path := filepath.Join(folder, name)
		old := time.Now().Add(-time.Minute)
		if os.MkdirAll(filepath.Dir(path), 0o700) != nil || os.WriteFile(path, nil, 0o600) != nil || os.Chtimes(path, old, old) != nil {
			t.Fatal("no files can be made")
		}
		if got := damaged(folder); !strings.Contains(got, path+" is empty: ") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
		opened(t, folder)
		if _, err := os.Stat(path); (err != nil) != strings.HasPrefix(name, "locks") {
			t.Errorf("%s after locks of nobody are removed: %v", name, err)
		}
	}
}
