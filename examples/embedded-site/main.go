// Command embedded-site is a whole site in one program: pages and documents within
// the executable, a method that answers in JSON, and the commit that it was built
// from at /git-hash.
//
//	go run ./examples/embedded-site [ADDR]
//
// To have the hash in it, build it: go build ./examples/embedded-site. Without git,
// go build -ldflags "-X main.gitHash=$HASH" says it.
package main

import (
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"millrace"
)

// Several patterns in one variable: pages, and below them only some kinds of
// assets. A pattern that finds nothing fails the build.
//
//go:embed public/*.html public/assets/*.css public/assets/*.svg
var public embed.FS

//go:embed docs
var docs embed.FS

// gitHash is set by the linker, where the go command does not know it.
var gitHash = ""

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	go withParent(os.Getppid(), stop)
	addr := "127.0.0.1:8080"
	if len(os.Args) > 1 {
		addr = os.Args[1]
	}
	if err := run(ctx, addr); err != nil {
		fmt.Fprintln(os.Stderr, "embedded-site:", err)
		os.Exit(1)
	}
}

// withParent calls stop when what has started this program is gone: go run, ended by SIGTERM,
// leaves it behind. A program that is installed needs no such thing.
func withParent(parent int, stop func()) {
	for os.Getppid() == parent {
		time.Sleep(300 * time.Millisecond)
	}
	stop()
}

func run(ctx context.Context, addr string) error {
	srv, err := newServer(addr, time.Now)
	if err != nil {
		return err
	}
	for _, url := range srv.Addrs() {
		fmt.Println("serving at", url)
	}
	return srv.Run(ctx)
}

func newServer(addr string, now func() time.Time) (*millrace.Server, error) {
	pages, err := fs.Sub(public, "public") // without it they would be at /public/
	if err != nil {
		return nil, err
	}
	papers, err := fs.Sub(docs, "docs")
	if err != nil {
		return nil, err
	}
	return millrace.New(millrace.Config{
		Listen: []string{addr},
		Sites: []millrace.Site{{Routes: map[string]millrace.Route{
			"/":         {Files: pages},
			"/docs/":    {Files: papers},
			"/api/time": {Handler: timeHandler(now)},
			"/git-hash": {Handler: http.HandlerFunc(hashHandler)},
		}}},
	})
}

// timeHandler answers in JSON, and differently each time.
func timeHandler(now func() time.Time) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "GET tells the time.", http.StatusMethodNotAllowed)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		_ = json.NewEncoder(w).Encode(struct { // an error means that the client is gone
			Time time.Time `json:"time"`
		}{now().UTC()})
	})
}

func hashHandler(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = fmt.Fprintln(w, hash())
}

// hash is the commit that the program was built from.
func hash() string {
	if gitHash != "" {
		return gitHash
	}
	found, modified := "unknown", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				found = s.Value
			case s.Key == "vcs.modified" && s.Value == "true":
				modified = ", with changes"
			}
		}
	}
	return found + modified
}
