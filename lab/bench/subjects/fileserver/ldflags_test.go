//go:build !single

package main

import (
	"encoding/base64"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"testing"
)

// fill does what the linker does with the lab's -ldflags.
func fill(t *testing.T) {
	t.Helper()
	files, err := embeddedSite()
	if err != nil {
		t.Fatal(err)
	}
	content := func(name string) string {
		b, err := fs.ReadFile(files, name)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	coded := func(name string) string { return base64.StdEncoding.EncodeToString([]byte(content(name))) }
	indexHTML, testHTML = content("index.html"), content("test.html")
	testJS, verifyJSON = content("assets/js/test.js"), content("stopdiiacity/verify.json")
	favicon16, favicon32, faviconICO = coded("favicon-16x16.png"), coded("favicon-32x32.png"), coded("favicon.ico")
	gitHash = "0123456789abcdef"
}

func TestLinkedSite(t *testing.T) {
	fill(t)
	h, err := linkedSite()
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(h)
	defer server.Close()
	checkSite(t, &http.Client{Transport: &http.Transport{DisableCompression: true}}, server.URL)
	r, err := http.Get(server.URL + "/git-hash")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if b, _ := io.ReadAll(r.Body); r.StatusCode != http.StatusOK || string(b) != gitHash {
		t.Errorf("/git-hash: status %d, %q", r.StatusCode, b)
	}
}

func TestRefusesToServeEmptyPages(t *testing.T) {
	indexHTML = ""
	if _, err := linkedSite(); err == nil {
		t.Error("a program without its files serves")
	}
}
