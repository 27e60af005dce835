package main

import (
	"os"
	"path/filepath"
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
