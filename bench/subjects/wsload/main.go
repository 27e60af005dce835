// Command wsload is the client of bench/run ws: see package wsload. It reads
// orders from its standard input, each a line of JSON, and writes a line of JSON
// for each. The end of its input ends it.
//
//	wsload
package main

import (
	"fmt"
	"os"
	"runtime"

	"millrace/bench/subjects/internal/wsload"
)

func main() {
	runtime.LockOSThread() // the one thread that all connections are on
	if err := wsload.Serve(os.Stdin, os.Stdout); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "wsload:", err)
		os.Exit(1)
	}
}
