// Command nethttp is the plain http.FileServer that the experiment files compares with:
// what a Go program has before anybody makes it faster. Nothing is tuned.
//
//	nethttp -root DIR -listen 127.0.0.1:PORT -unix PATH
package main

import (
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
)

func main() {
	root := flag.String("root", ".", "the `folder` to serve")
	listen := flag.String("listen", "127.0.0.1:0", "the TCP `address`")
	socket := flag.String("unix", "", "the UNIX socket's `path`, none by default")
	flag.Parse()
	if err := run(*root, *listen, *socket); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "nethttp:", err)
		os.Exit(1)
	}
}

// run serves until a listener fails; SIGTERM ends the process as it is.
func run(root, listen, socket string) error {
	server := &http.Server{Handler: http.FileServer(http.Dir(root))}
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
