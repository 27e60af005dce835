// Command fasthttpfs is fasthttp's own file server, which the experiment files compares
// with. FS and Server keep their defaults, but the index page, which FS has to
// be told about.
//
//	fasthttpfs -root DIR -listen 127.0.0.1:PORT -unix PATH
package main

import (
	"flag"
	"fmt"
	"net"
	"os"

	"github.com/valyala/fasthttp"
)

func main() {
	root := flag.String("root", ".", "the `folder` to serve")
	listen := flag.String("listen", "127.0.0.1:0", "the TCP `address`")
	socket := flag.String("unix", "", "the UNIX socket's `path`, none by default")
	flag.Parse()
	if err := run(*root, *listen, *socket); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "fasthttpfs:", err)
		os.Exit(1)
	}
}

// run serves until a listener fails; SIGTERM ends the process as it is.
func run(root, listen, socket string) error {
	fs := &fasthttp.FS{Root: root, IndexNames: []string{"index.html"}, AcceptByteRange: true}
	server := &fasthttp.Server{Handler: fs.NewRequestHandler()}
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
