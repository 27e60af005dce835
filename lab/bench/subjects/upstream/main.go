// Command upstream is the servers that stand behind the caches and proxies which are
// compared.
//
//	upstream api -listen 127.0.0.1:PORT [-delay 104ms] [-errors 0.05] [-seed 1]
//	upstream bytes -listen 127.0.0.1:PORT
package main

import (
	"errors"
	"fmt"
	"os"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "upstream:", err)
		os.Exit(1)
	}
}

// run serves until the listener fails; SIGTERM ends the process as it is.
func run(args []string) error {
	switch {
	case len(args) > 0 && args[0] == "api":
		return apiMain(args[1:])
	case len(args) > 0 && args[0] == "bytes":
		return bytesMain(args[1:])
	}
	return errors.New("the first argument must be api or bytes")
}
