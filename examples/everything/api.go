// A slow API to put a cache in front of:
//
//	go run examples/everything/api.go                   # on 127.0.0.1:5000
//	go run examples/everything/api.go unix:/tmp/api     # or on a UNIX socket
//
// It says how high the river is. It takes 300 ms to find out, and counts how
// often it was asked.
package main

import (
	"errors"
	"fmt"
	"log"
	"math"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "api:", err)
		os.Exit(1) //nolint:forbidigo // this is main
	}
}

func run(args []string) error {
	network, address := "tcp", "127.0.0.1:5000"
	if len(args) > 0 {
		address = args[0]
		if path, ok := strings.CutPrefix(address, "unix:"); ok {
			network, address = "unix", path
		}
	}
	listener, err := net.Listen(network, address)
	if err != nil {
		return err
	}
	go closeWithParent(os.Getppid(), listener)
	log.Printf("a slow API at %s", listener.Addr())
	var asked atomic.Int64
	http.HandleFunc("GET /api/river", func(w http.ResponseWriter, _ *http.Request) {
		n, now := asked.Add(1), time.Now()
		time.Sleep(300 * time.Millisecond) // a gauge far away
		level := 140 + 20*math.Sin(float64(now.Unix())/60)
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"level": %.0f, "unit": "cm", "measured": %q, "asked": %d}`+"\n", level, now.UTC().Format(time.RFC3339), n)
	})
	if err := http.Serve(listener, nil); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// closeWithParent ends Serve when what has started this program is gone: go run, ended by
// SIGTERM, leaves it behind.
func closeWithParent(parent int, listener net.Listener) {
	for os.Getppid() == parent {
		time.Sleep(300 * time.Millisecond)
	}
	_ = listener.Close()
}
