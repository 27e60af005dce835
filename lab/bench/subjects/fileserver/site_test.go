//go:build !single

package main

import (
	"bytes"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
)

// serve starts a server on a port of its own, and returns its URL.
func serve(t *testing.T, name string, o options) string {
	t.Helper()
	s, err := servers()[name](o)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = s(l) }() // ends with the listener
	t.Cleanup(func() { l.Close(); <-done })
	return "http://" + l.Addr().String()
}

func TestServesTheSite(t *testing.T) {
	dir := siteDir(t)
	client := &http.Client{Transport: &http.Transport{DisableCompression: true, DisableKeepAlives: true}}
	for _, name := range []string{"nethttp", "gin", "fasthttp"} {
		t.Run(name+"-disk", func(t *testing.T) { checkSite(t, client, serve(t, name, options{root: dir})) })
	}
	for _, name := range []string{"nethttp-plain", "fasthttp-plain"} {
		t.Run(name, func(t *testing.T) { checkSite(t, client, serve(t, name, options{root: dir})) })
	}
	for _, name := range []string{"nethttp", "gin", "fasthttp", "millrace"} {
		t.Run(name+"-embed", func(t *testing.T) { checkSite(t, client, serve(t, name, options{root: t.TempDir(), embed: true})) })
	}
}

func TestUnknownServer(t *testing.T) {
	if err := run("other", options{}, "127.0.0.1:0", ""); err == nil {
		t.Error("an unknown server was accepted")
	}
}

// siteDir writes the site into a folder for subjects that serve from disk.
func siteDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	each(t, func(name string, content []byte) {
		at := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, content, 0o644); err != nil {
			t.Fatal(err)
		}
	})
	return dir
}

// checkSite asks client for every file of the site, and for one that is not there.
func checkSite(t *testing.T, client *http.Client, url string) {
	t.Helper()
	count := 0
	each(t, func(name string, content []byte) {
		count++
		path := "/" + name
		if name == "index.html" {
			path = "/"
		}
		status, header, body := get(t, client, url+path)
		if status != http.StatusOK || !bytes.Equal(body, content) {
			t.Errorf("%s: status %d, %d bytes instead of %d, or others", path, status, len(body), len(content))
		}
		if header.Get("Content-Encoding") != "" {
			t.Errorf("%s: encoded, though nobody asked for that", path)
		}
	})
	if count < 7 {
		t.Errorf("only %d files were asked for", count)
	}
	if status, _, _ := get(t, client, url+"/is-not-there"); status != http.StatusNotFound {
		t.Errorf("a file that is not there: status %d", status)
	}
}

func get(t *testing.T, client *http.Client, url string) (int, http.Header, []byte) {
	t.Helper()
	r, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, r.Header, body
}

func each(t *testing.T, do func(name string, content []byte)) {
	t.Helper()
	files, err := embeddedSite()
	if err != nil {
		t.Fatal(err)
	}
	err = fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		do(name, content)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
