// Command frameworks serves the same small site by Gin, chi, Echo, fasthttp or
// net/http, each with Millrace's fast lane in front by two lines: see main.
//
//	go run . gin 127.0.0.1:8080
//
// The files are hot from the second request on. The API's requests reach the
// framework's own router, with its middleware.
package main

import (
	"embed"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"millrace"
	"millrace/static"
)

//go:embed site
var site embed.FS

// frameworks make the site's router. Each serves files below /files/, and says
// hello as JSON at /api/hello/NAME.
var frameworks = map[string]func(files http.Handler) http.Handler{
	"gin": ginRouter, "chi": chiRouter, "echo": echoRouter, "fasthttp": fastRouter, "nethttp": mux,
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "frameworks:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 || frameworks[args[0]] == nil {
		return fmt.Errorf("which framework, and at which address? go run . %s 127.0.0.1:8080", strings.Join(slices.Sorted(maps.Keys(frameworks)), "|"))
	}
	files, err := siteFiles()
	if err != nil {
		return err
	}
	defer files.Close()
	router := frameworks[args[0]](millrace.Public(http.StripPrefix("/files", files)))

	ln, err := millrace.Listen(args[1])
	if err != nil {
		return err
	}
	go closeWithParent(os.Getppid(), ln)
	fmt.Printf("%s at http://%s\n", args[0], ln.Addr())
	return millrace.Serve(ln, router)
}

// closeWithParent ends Serve when what has started this program is gone: go run, ended by
// SIGTERM, leaves it behind.
func closeWithParent(parent int, ln net.Listener) {
	for os.Getppid() == parent {
		time.Sleep(300 * time.Millisecond)
	}
	_ = ln.Close()
}

func siteFiles() (*static.Handler, error) {
	files, err := fs.Sub(site, "site")
	if err != nil {
		return nil, err
	}
	return static.New(files, static.Options{})
}

// greeting is what the API answers.
type greeting struct {
	Hello string `json:"hello"`
}
