package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"millrace/internal/config"
)

// TestLiveExamples: there is nothing wrong with the examples of channels, and
// their page asks for what their routes serve.
func TestLiveExamples(t *testing.T) {
	dir := filepath.Join("..", "..", "examples")
	for _, name := range []string{"live", "live-machines"} {
		file := filepath.Join(dir, name, "millrace.yaml")
		cfg, err := config.Load(file)
		if err != nil {
			t.Error(err)
			continue
		}
		routes := cfg.Sites[0].Routes
		o := routes["/live/"].WebSocket
		if o == nil || o.Channels == nil || len(o.Channels.Auth.Publish) == 0 || o.Channels.History.Messages == 0 {
			t.Errorf("%s shows too little: %+v", file, o)
		}
		if name == "live-machines" && o.Channels.Bus == "" {
			t.Errorf("%s has no bus", file)
		}
		if s := routes["/"].Static; s == nil {
			t.Errorf("%s serves no page", file)
		} else if script, err := os.ReadFile(filepath.Join(s.Root, "live.js")); err != nil || !strings.Contains(string(script), `from "/live/client.js"`) {
			t.Errorf("%s: the page's script does not use the route's client: %v", file, err)
		}
	}
}

// TestEverythingExample: the example with everything shows each of it, and its
// images are small.
func TestEverythingExample(t *testing.T) {
	dir := filepath.Join("..", "..", "examples", "everything")
	cfg, err := config.Load(filepath.Join(dir, "millrace.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	routes := cfg.Sites[0].Routes
	if r := routes["/"]; r.Static == nil {
		t.Error("it serves no page")
	}
	if r := routes["/photos/"]; r.Static == nil || r.Images == nil {
		t.Error("it converts no pictures")
	}
	if r := routes["/api/"]; r.Cache == nil || r.Cache.TTL == 0 {
		t.Error("it keeps nothing of the API")
	}
	if r := routes["/live/"]; r.WebSocket == nil || r.WebSocket.Channels == nil {
		t.Error("it has no channel")
	}
	page, err := os.ReadFile(filepath.Join(dir, "public", "index.html"))
	if err != nil {
		t.Fatal(err)
	}
	pictures, err := filepath.Glob(filepath.Join(dir, "photos", "*.jpg"))
	if err != nil || len(pictures) == 0 {
		t.Fatalf("pictures: %v, %v", pictures, err)
	}
	const largest = 40 << 10 // bytes in the repository, for good
	for _, p := range pictures {
		info, err := os.Stat(p)
		if err != nil || info.Size() > largest {
			t.Errorf("%s: %v, or too large", p, err)
		}
		if src := `src="photos/` + filepath.Base(p); !strings.Contains(string(page), src) {
			t.Errorf("the page has no %s", src)
		}
	}
}

// TestWebPServerExample: the config for who comes from a WebP server says what
// its page says.
func TestWebPServerExample(t *testing.T) {
	cfg, err := config.Load(filepath.Join("..", "..", "examples", "webp-server", "millrace.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	o := cfg.Sites[0].Routes["/"].Images
	if o == nil || !o.OnlyImages || o.Quality != 80 || filepath.Base(o.Store) != "exhaust" || !slices.Equal(o.Formats, []string{"webp"}) {
		t.Errorf("it shows too little: %+v", o)
	}
}
