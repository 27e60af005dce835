// Command fileserver is the file servers that millrace is compared with, each written to
// the description of a published measurement. Nothing in them is tuned.
//
//	fileserver -server NAME [-embed] -root DIR -listen 127.0.0.1:PORT [-unix PATH]
//	fileserver -server sendfile -how servefile|copy|wrapped|nolength -root DIR -listen 127.0.0.1:PORT -unix PATH
//	fileserver -server page -page FILE -cert FILE -key FILE -listen 127.0.0.1:PORT
//
// Built without tags it has all servers. The lab measures sizes and memory, so it builds
// one executable for each library: -tags=single,gin has Gin alone, and with the tag disk
// no site is embedded.
package main

import (
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
)

// options are the flags.
type options struct {
	root            string
	embed           bool
	how             string // of sendfile
	page, cert, key string // of page: files
}

// newServer makes a server. What it returns serves until the listener fails, and may be
// called for several listeners at once.
type newServer func(options) (serve func(net.Listener) error, err error)

func main() {
	var o options
	name := flag.String("server", "", strings.Join(names(), ", "))
	flag.StringVar(&o.root, "root", ".", "the `folder` to serve")
	flag.BoolVar(&o.embed, "embed", false, "serve the site in the executable instead")
	flag.StringVar(&o.how, "how", "servefile", "how sendfile sends: servefile, copy, wrapped or nolength")
	flag.StringVar(&o.page, "page", "", "the `file` that page answers with")
	flag.StringVar(&o.cert, "cert", "", "the certificate's `file` (PEM), of page")
	flag.StringVar(&o.key, "key", "", "the private key's `file` (PEM), of page")
	listen := flag.String("listen", "127.0.0.1:0", "the TCP `address`")
	socket := flag.String("unix", "", "the UNIX socket's `path`, none by default")
	flag.Parse()
	if err := run(*name, o, *listen, *socket); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "fileserver:", err)
		os.Exit(1)
	}
}

func names() []string { return slices.Sorted(maps.Keys(servers())) }

// run serves until a listener fails; SIGTERM ends the process as it is.
func run(name string, o options, listen, socket string) error {
	start, ok := servers()[name]
	if !ok {
		return fmt.Errorf("-server is %q: this executable has %s", name, strings.Join(names(), ", "))
	}
	serve, err := start(o)
	if err != nil {
		return err
	}
	failed := make(chan error, 2) // one place for each listener: nobody blocks
	tcp, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	go func() { failed <- serve(tcp) }()
	if socket != "" {
		unix, err := net.Listen("unix", socket)
		if err != nil {
			return err
		}
		go func() { failed <- serve(unix) }()
	}
	return <-failed
}

// site is what -root or -embed names, and the answer of its JSON method.
func (o options) site() (fs.FS, *verification, error) {
	files := os.DirFS(o.root)
	if o.embed {
		var err error
		if files, err = embeddedSite(); err != nil {
			return nil, nil, err
		}
	}
	v, err := readVerification(files)
	return files, v, err
}

// siteFiles is site for net/http: a folder as http.Dir, which is how it is published.
func (o options) siteFiles() (http.FileSystem, *verification, error) {
	files, v, err := o.site()
	if err != nil || o.embed {
		return http.FS(files), v, err
	}
	return http.Dir(o.root), v, nil
}

// serveHTTP serves a handler with net/http as it is.
func serveHTTP(h http.Handler) func(net.Listener) error { return (&http.Server{Handler: h}).Serve }
