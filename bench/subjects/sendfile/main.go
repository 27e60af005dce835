// Command sendfile sends one file in one of four ways, over TCP and over a UNIX
// socket: the subjects of sendfile-paths.
//
//	sendfile -how servefile -root DIR -listen 127.0.0.1:PORT -unix PATH
package main

import (
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strconv"
)

func main() {
	how := flag.String("how", "servefile", "servefile, copy, wrapped or nolength")
	root := flag.String("root", ".", "the `folder` whose files are sent")
	listen := flag.String("listen", "127.0.0.1:8080", "the TCP `address`")
	socket := flag.String("unix", "", "the UNIX socket's `path`, none by default")
	flag.Parse()
	if err := run(*how, *root, *listen, *socket); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "sendfile:", err)
		os.Exit(1)
	}
}

// run serves until a listener fails; SIGTERM ends the process as it is.
func run(how, root, listen, socket string) error {
	h, err := handler(how, root)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: h}
	failed := make(chan error, 2) // one place for each listener: nobody blocks
	tcp, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	go func() { failed <- server.Serve(tcp) }()
	if socket != "" {
		unix, err := net.Listen("unix", socket)
		if err != nil {
			return err
		}
		go func() { failed <- server.Serve(unix) }()
	}
	return <-failed
}

// handler sends the file that the URL's path names in root, in the way called how.
func handler(how, root string) (http.Handler, error) {
	name := func(r *http.Request) string {
		return filepath.Join(root, filepath.FromSlash(path.Clean("/"+r.URL.Path)))
	}
	switch how {
	case "servefile":
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.ServeFile(w, r, name(r))
		}), nil
	case "copy":
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			send(w, w, name(r), true)
		}), nil
	case "wrapped":
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			send(w, wrapper{w}, name(r), true)
		}), nil
	case "nolength":
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			send(w, w, name(r), false)
		}), nil
	}
	return nil, fmt.Errorf("%q is none of the ways to send: servefile, copy, wrapped, nolength", how)
}

// wrapper is what a middleware wraps around an answer to see its status or its
// length, and what hides the answer's ReadFrom, which io.Copy looks for.
type wrapper struct{ w http.ResponseWriter }

func (w wrapper) Write(p []byte) (int, error) { return w.w.Write(p) }

// send copies the file called name to body, which is w or around it.
func send(w http.ResponseWriter, body io.Writer, name string, length bool) {
	f, err := os.Open(name)
	if err != nil {
		http.Error(w, "no such file", http.StatusNotFound)
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		http.Error(w, "no such file", http.StatusNotFound)
		return
	}
	// Named, so that net/http does not have to look at the first bytes.
	w.Header().Set("Content-Type", "application/octet-stream")
	if length {
		w.Header().Set("Content-Length", strconv.FormatInt(info.Size(), 10))
	}
	_, _ = io.Copy(body, f) // a client that went away has lost what it did not get
}
